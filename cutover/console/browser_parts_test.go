package console

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
)

// Release lets a postponed flip go on, or ends it.
//
//nolint:revive // abort is one of its two outcomes
func (s *stage) Release(_ context.Context, scope cutover.Scope, abort bool, by string) (*face.Move, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[0].Postponed, s.streams[0].Busy = nil, ""
	s.released = fmt.Sprintf("abort %t by %s", abort, by)
	if abort {
		s.streams[0].Legal = []string{"flip", "canary add"}
		return &face.Move{Scope: scope, To: "ehdb", State: "aborted"}, nil
	}
	s.flipped()
	return &face.Move{Scope: scope, To: "ehdb", State: "done", Undo: "ehdbctl rollback"}, nil
}

// Canary serves a consumer from here, or ends that.
func (s *stage) Canary(_ context.Context, r face.CanaryRequest) ([]face.CanaryResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canaries = append(s.canaries, r)
	return nil, nil
}

func (s *stage) Pause(_ context.Context, r face.PauseRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slowed = append(s.slowed, r)
	return nil
}

func (s *stage) Throttle(_ context.Context, r face.ThrottleRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slowed = append(s.slowed, r)
	return nil
}

// busy has a flip that waits, canaries, pauses, hooks and drills.
func busy(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	now := time.Now()
	st := &s.streams[0]
	st.Phase, st.Legal = face.PhaseCanary, []string{"flip go", "flip abort", "canary add", "canary rm"}
	st.Busy = "flip: postponed, waits for the file /run/wait-for-orders to go"
	st.Postponed = &face.Postponed{
		Since: now.Add(-time.Minute), Until: now.Add(time.Hour), By: "ann", Reason: "change 4711", Waits: "the file /run/wait-for-orders to go",
	}
	st.Canaries = []face.Canary{
		{Consumer: "worker", Since: now.Add(-time.Hour), By: "ann", Abort: []string{"G4", "G10"}, Delivered: 8412070, AckFloor: 8412001, Pending: 3, Mirrored: now},
		{Consumer: "reports", Since: now.Add(-time.Hour), By: "ann", Delivered: 12, AckFloor: 9, Error: "the servers' consumer is at 8", Failing: "G10 FAIL: 1 consumer is silent"},
	}
	more := *st
	more.Scope.Stream, more.Parity, more.Postponed, more.Canaries, more.Busy = "JOBS", nil, nil, nil, ""
	more.Phase, more.Copy.Paused = face.PhaseShadow, "the disk is exchanged, change 4712"
	more.Copy.Throttled = "pubp99 31ms is above 20ms (--max-load set by ann: office hours)"
	more.Copy.Load = &face.LoadState{Max: "pubp99=20ms", Critical: "pubp99=200ms", By: "ann"}
	more.Legal = []string{"flip", "canary add", "shadow stop", "shadow reset", "resume", "throttle"}
	s.streams = append(s.streams, more)
	s.paused = "the disk is exchanged, change 4712"
	s.hooks = face.Hooks{
		Dir: "/etc/ehdb/hooks", Timeout: 30, Found: []string{"on-before-flip", "on-success"},
		Problems: []string{"on-before-flip is not executable: chmod +x /etc/ehdb/hooks/on-before-flip"},
	}
	s.drills = []face.Drill{
		{ID: 5, Kind: "kill-gateway", State: "running", Step: "fault", Scope: orders, Started: now},
		{ID: 6, Kind: "restart-writer", State: "failed", Scope: orders, Started: now, Expires: now.Add(time.Hour), Result: "2 messages were delivered again behind a confirmed ack; clients waited 31.4 s"},
	}
	s.events = append(s.events, face.Event{ID: 2, Time: now, Kind: "drill", Scope: orders, By: "ann", Text: "a drill", Reason: "kill-gateway (5) begins"})
	return s
}

// What is going on besides streams that move can be read in light and dark, on a wide screen and a telephone's, and nothing
// sticks out of the page.
func TestBrowserParts(t *testing.T) {
	b := browse(t)
	_, web := serve(t, busy(t), Options{})
	b.open("about:blank")
	for scheme, width := range map[string]int64{"light": 1280, "dark": 375} { // the others are TestBrowserLooks'
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		noErr(t, err)
		b.do(chromedp.EmulateViewport(width, 900))
		for name, path := range map[string]string{"parts": "", "paused": "?scope=%24G/JOBS", "canary": "/plan?scope=ORDERS&do=canary+add"} {
			b.do(chromedp.Navigate(web.URL + "/console" + path))
			b.when(`document.readyState === 'complete'`)
			if bad := ask(b, chromedp.Evaluate[string](unreadable)); bad != "" {
				t.Errorf("%s, %s, %d: %s", name, scheme, width, bad)
			}
			if wide := ask(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
				t.Errorf("%s, %s: %d wide on %d", name, scheme, wide, width)
			}
			b.shot(fmt.Sprintf("%s-%s-%d", name, scheme, width))
		}
	}
	b.do(chromedp.Navigate(web.URL + "/console?scope=%24G/JOBS"))
	wants(t, b.text(), "Resume copying…", "Hold the history back…", "pubp99 31ms is above 20ms", "above pubp99=20ms stops at pubp99=200ms by ann")
	b.do(chromedp.Navigate(web.URL + "/console"))
	wants(t, b.text(), "postponed since", "waits for the file /run/wait-for-orders to go", "G4, G10 failing twice", "G10 FAIL: 1 consumer is silent",
		"the disk is exchanged, change 4712 until ehdbctl resume", "on-before-flip is not executable", "kill-gateway", "running fault", "2 messages were delivered again",
		"kill-gateway (5) begins")
}

// A postponed flip is let go, or ended, and a consumer is served from here, by keyboard alone.
func TestBrowserKeyboard(t *testing.T) {
	b := browse(t)
	s := busy(t)
	_, web := serve(t, s, Options{})
	b.open(web.URL + "/console")
	id := newView(&look{status: must(s.Status(t.Context()))}, time.Now(), "", "").Shown[0].ID
	form := func(action string, more ...string) {
		t.Helper()
		b.do(chromedp.Navigate(web.URL + "/console"))
		b.tabTo("a-" + id + "-" + action)
		b.press(kb.Enter)
		b.do(chromedp.WaitVisible(chromedp.ID("act")))
		b.tabTo("name")
		for i, text := range append(append([]string{"ORDERS"}, more...), "me", "try", token) {
			if i > 0 {
				b.press(kb.Tab)
			}
			if text != "" {
				b.press(text)
			}
		}
	}
	send := func() {
		t.Helper()
		b.tabTo("do")
		b.press(kb.Enter)
		b.when(`document.getElementById('result').className === 'good'`)
	}
	form("canary-add", "worker", "g4, G77")
	b.when(`document.getElementById('do').disabled`) // there is no such gate
	form("canary-add", "worker", "g4, G10")
	wants(t, b.text(), "UNDO ehdbctl canary rm --scope 'consumer=$G/ORDERS/NAME'")
	b.when(`!document.getElementById('do').disabled`)
	b.shot("canary-filled")
	send()
	form("canary-rm", "worker")
	send()
	if c := s.canaries; len(c) != 2 || c[0].Consumer != "worker" || strings.Join(c[0].Abort, " ") != "G4 G10" || c[0].Remove || !c[1].Remove {
		t.Fatalf("%+v", c)
	}
	form("flip-go")
	send()
	if s.released != "abort false by me" {
		t.Fatal(s.released)
	}
	s.change(func(s *stage) { s.streams[0] = busy(t).streams[0] })
	form("flip-abort")
	send()
	if s.released != "abort true by me" {
		t.Fatal(s.released)
	}

	// So are pauses and throttles.
	s.change(func(s *stage) {
		s.streams[0].Postponed, s.streams[0].Busy = nil, ""
		s.streams[0].Legal = []string{"pause", "resume", "throttle", "throttle off"}
	})
	form("pause")
	wants(t, b.text(), "ehdbctl pause --scope '$G/ORDERS' --reason WHY")
	send()
	form("resume")
	send()
	form("throttle", "pubp99=20ms", "")
	b.shot("throttle-filled")
	send()
	form("throttle", "", "")
	send()
	form("throttle-off")
	send()
	if len(s.slowed) != 5 {
		t.Fatalf("%+v", s.slowed)
	}
	if r, ok := s.slowed[0].(face.PauseRequest); !ok || r.End || r.Scope != orders || r.By != "me" || r.Reason != "try" {
		t.Errorf("%+v", s.slowed[0])
	}
	if r, ok := s.slowed[1].(face.PauseRequest); !ok || !r.End || r.Scope != orders {
		t.Errorf("%+v", s.slowed[1])
	}
	for i, want := range []face.ThrottleRequest{{}, {}, {Off: true}} {
		r, ok := s.slowed[2+i].(face.ThrottleRequest)
		if !ok || r.Off != want.Off || r.Scope != orders || r.Reason != "try" || (r.Max != nil) != (i == 0) || r.Critical != nil {
			t.Errorf("%+v", r)
		}
	}

	// On a narrow screen what is wider than it is scrolled by keyboard, too.
	b.do(chromedp.EmulateViewport(375, 900), chromedp.Navigate(web.URL+"/console"))
	for range 60 {
		b.press(kb.Tab)
		if ask(b, chromedp.Evaluate[bool](`document.activeElement.matches('.wide') && document.activeElement.scrollWidth > document.activeElement.clientWidth`)) {
			return
		}
	}
	t.Error("the keyboard does not reach a table that is wider than the screen")
}
