// Package resolver keeps the claims of accounts for operator mode and answers the requests of the system account that
// look at them and change them, as `nsc push` and `nsc pull` make them.
package resolver
