package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/noetl/ehdb-gateway/cutover/drill"
)

// errDrill is why the log's writer stops in a drill.
var errDrill = errors.New("a drill stops the log's writer as a failed sync would")

// restartTime bounds how long a drill waits until the data directory is open again.
const restartTime = 30 * time.Second

// faults are what drills may do to this process.
func (m *mover) faults() drill.Faults {
	svc := m.a.streams.svc
	f := drill.Faults{
		Allowed: m.a.cfg.Bus.Drills,
		Reopens: func() uint64 { return svc.Counters().Reopens },
		Restart: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), restartTime)
			defer cancel()
			return svc.RestartFiles(ctx, errDrill)
		},
		Kill: killed,
	}
	if m.a.cut != nil {
		f.Cut = m.a.cut.For
	}
	return f
}

// killed ends this process as SIGKILL does: nothing is flushed, closed or said.
func killed() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	time.Sleep(100 * time.Millisecond)
	os.Exit(137) //nolint:mnd // the first process of a container is spared its own signals: it ends as if by one
}
