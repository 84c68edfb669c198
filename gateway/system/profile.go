package system

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// maxProfile is the longest time that a CPU profile may take.
const maxProfile = 15 * time.Second

// profilez takes a profile, apart from the other requests as it takes its time. There is one at a time.
func (r *request) profilez() {
	var o server.ProfilezEventOptions
	if err := r.decode(&o); err != nil {
		r.answer(nil, err)
		return
	}
	select {
	case r.s.profile <- struct{}{}:
	default:
		r.answer(&server.ProfilezStatus{Error: "another profile is being taken"}, nil)
		return
	}
	r.s.done.Go(func() {
		defer func() { <-r.s.profile }()
		status := profile(&o.ProfilezOptions, r.s.ended)
		r.s.push(func() { r.answer(status, nil) })
	})
}

// profile takes a profile; a long one ends early with stop.
func profile(o *server.ProfilezOptions, stop <-chan struct{}) *server.ProfilezStatus {
	var b bytes.Buffer
	switch o.Name {
	case "":
		return &server.ProfilezStatus{Error: "Profile name not specified"}
	case "cpu":
		if o.Duration <= 0 || o.Duration > maxProfile {
			text := fmt.Sprintf("Duration %s should be between 0s and %s", o.Duration, maxProfile)
			return &server.ProfilezStatus{Error: text}
		}
		if err := pprof.StartCPUProfile(&b); err != nil {
			return &server.ProfilezStatus{Error: err.Error()}
		}
		select {
		case <-time.After(o.Duration):
		case <-stop:
		}
		pprof.StopCPUProfile()
	default:
		p := pprof.Lookup(o.Name)
		if p == nil {
			return &server.ProfilezStatus{Error: fmt.Sprintf("Profile %q not found", o.Name)}
		}
		if err := p.WriteTo(&b, o.Debug); err != nil {
			return &server.ProfilezStatus{Error: err.Error()}
		}
	}
	return &server.ProfilezStatus{Profile: b.Bytes()}
}
