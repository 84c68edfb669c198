// Package subjects is the grammar of subjects: tokens separated by dots, the wildcards * (one token) and > (one or more
// tokens at the end), matching, overlap, and the index that finds the filters a subject matches.
package subjects
