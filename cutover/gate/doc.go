// Package gate computes whether a stream may be flipped (G1 to G23), and whether the way back may be given up (G24).
//
// A gate is a row of a table: checks of facts against thresholds of a profile. Facts are measured elsewhere and come
// with the time at which they were so. One that is absent, or too old, is UNKNOWN, and UNKNOWN is not green: only PASS
// is, or NOT_APPLICABLE with its reason. When the controls of the comparison failed, everything it says is UNKNOWN.
package gate
