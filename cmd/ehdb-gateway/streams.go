package main

import (
	"context"
	"errors"

	"github.com/noetl/ehdb-gateway/gateway/monitor"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

// streams is JetStream as the other parts see it.
type streams struct{ monitor.JetStream }

func newStreams(*app) *streams { return &streams{} }

func (*streams) start(context.Context) error { return errors.New("this build has no JetStream yet") }
func (*streams) stop() error                 { return nil }
func (*streams) addTo(*metrics.Sources)      {}
