package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// watched are the commands that only look and have no --watch of their own.
const watched = ", diff show, diff findings, diff explain, diff known, parity self-test, reverse status, bypass ls, " +
	"drill ls, drill show, keda check, doctor, mode,"

// watch gives a command, and those below it, --watch where there is something to be seen again.
func watch(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		watch(sub)
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	run := cmd.RunE
	if run == nil || !strings.Contains(watched, ", "+path+",") {
		return
	}
	again := false
	cmd.Flags().BoolVar(&again, "watch", false, "show it again every two seconds, until it cannot be or is interrupted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if again && path == "mode" && len(args) > 0 {
			return &exitError{exitNot, errors.New("--watch: the mode is changed once")}
		}
		for {
			err := run(cmd, args)
			var verdict *exitError
			// An exit code without words is what it came to.
			told := err == nil || errors.As(err, &verdict) && verdict.err == nil
			if !again || !told || !pause(cmd.Context(), watchEvery) {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
		}
	}
}
