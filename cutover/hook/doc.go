// Package hook runs the operator's own programs at the turns of a cutover: a folder holds executables named by event.
// Those of on-before-… are asked, and refuse by an exit code other than 0; the others are told. They are given facts,
// by variables of the environment and as JSON on standard input.
//
//	hook   the folder and what is in it
//	facts  what a program is given
//	run    one run: no shell, bounded time, bounded output, nothing of it left behind
package hook
