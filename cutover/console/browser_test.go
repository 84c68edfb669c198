package console

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// browser is a real one, with one tab open.
type browser struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it
	dir string
}

func browse(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	dir := os.Getenv("EHDB_SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1400, 1000))...)
	t.Cleanup(stop)
	ctx, shut := chromedp.NewContext(ctx)
	t.Cleanup(shut)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits until it has ended
	return &browser{t, ctx, dir}
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	noErr(b.t, chromedp.Do(ctx, steps...))
}

// ask runs what has a result.
func ask[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	noErr(b.t, err)
	return v
}

// run runs a script in the page.
func (b *browser) run(script string) {
	b.t.Helper()
	ask(b, chromedp.Evaluate[bool](script+"; true"))
}

func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// open must be called first: the browser lives as long as the context of its first call.
func (b *browser) open(url string) {
	b.t.Helper()
	noErr(b.t, chromedp.Do(b.ctx, chromedp.Navigate(url)))
}

// when waits for an expression to be true in the page.
func (b *browser) when(expr string) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ask(b, chromedp.Evaluate[bool]("Boolean("+expr+")")) {
		if time.Now().After(deadline) {
			b.shot("failed")
			b.t.Fatalf("%s does not become true in\n%s", expr, b.text())
		}
	}
}

func (b *browser) text() string {
	b.t.Helper()
	return strings.Join(strings.Fields(ask(b, chromedp.Evaluate[string](`document.body.innerText`))), " ")
}

// shot keeps a picture of the whole page.
func (b *browser) shot(name string) {
	b.t.Helper()
	png := ask(b, chromedp.FullScreenshot(100))
	at := filepath.Join(b.dir, name+".png")
	noErr(b.t, os.WriteFile(at, png, 0o600))
	if len(png) < 1000 {
		b.t.Errorf("%s is empty", at)
	}
}

// tabTo presses the tabulator until the element with that id has the focus.
func (b *browser) tabTo(id string) {
	b.t.Helper()
	for range 60 {
		b.press(kb.Tab)
		if ask(b, chromedp.Evaluate[string](`document.activeElement.id`)) == id {
			return
		}
	}
	b.t.Fatalf("the keyboard does not reach %s", id)
}

// A flip by keyboard, watched on the page that was open before: nothing is loaded anew. Then the gateway goes away.
func TestBrowser(t *testing.T) {
	b := browse(t)
	s := newStage(t)
	c, web := serve(t, s, Options{Interval: 200 * time.Millisecond})
	b.open(web.URL + "/console")
	b.when(`document.getElementById('following').textContent === 'Kept up to date.'`)
	wants(t, b.text(), "SHADOW", "sequences that differ: 1", "ehdbctl gates")
	b.shot("shadow")
	b.do(chromedp.EmulateViewport(420, 900))
	b.shot("narrow")
	b.do(chromedp.EmulateViewport(1400, 1000))

	// What was opened stays open while parts are sent anew, and the focus stays too.
	id := newView(&look{status: must(s.Status(t.Context()))}, time.Now(), "", "").Shown[0].ID
	b.run(`window.same = true; document.getElementById('g-` + id + `-G3').open = true`)
	b.tabTo("a-" + id + "-flip")
	was := len(s.events)
	s.change(func(s *stage) {
		s.events = append(s.events, face.Event{ID: uint64(was) + 1, Kind: "drill", Text: "news"})
	}) //nolint:gosec // small
	b.when(`document.getElementById('timeline').innerText.includes('news')`)
	b.when(`document.getElementById('g-` + id + `-G3').open && document.activeElement.id === 'a-` + id + `-flip'`)
	b.shot("gate")

	// The plan page, in the same tab.
	b.press(kb.Enter)
	b.do(chromedp.WaitVisible(chromedp.ID("digest")))
	wants(t, b.text(), "7c1e55aa", "UNDO ehdbctl rollback --scope '$G/ORDERS'", "hold publishes and pulls")
	b.tabTo("name")
	b.press("ORDER", kb.Tab, "me", kb.Tab, "try", kb.Tab, "wrong")
	b.when(`document.getElementById('do').disabled`) // the name is not right
	b.do(chromedp.SendKeys(chromedp.ID("name"), "S"))
	b.when(`!document.getElementById('do').disabled`)
	b.shot("plan")
	b.press(kb.Enter)
	b.when(`document.getElementById('result').innerText.includes("operator's token")`)
	b.when(`document.getElementById('token').value === ''`)
	if len(s.flips) > 0 {
		t.Fatal("it was done without the token")
	}

	// Another tab watches while the form is sent.
	ctx, shut := chromedp.NewContext(b.ctx)
	t.Cleanup(shut)
	watching := &browser{t, ctx, b.dir}
	watching.open(web.URL + "/console")
	watching.run(`window.same = true`)
	b.do(chromedp.SendKeys(chromedp.ID("token"), token+kb.Enter))
	b.when(`document.getElementById('result').innerText.includes('UNDO ehdbctl rollback')`)
	b.shot("done")
	if f := s.flips; len(f) != 1 || f[0].Expect != "7c1e55aa" || f[0].By != "me" || f[0].Reason != "try" || f[0].Scope != orders {
		t.Fatalf("%+v", f)
	}
	watching.when(`window.same && document.querySelector('.rail [aria-current]').innerText.includes('EHDB')`)
	watching.when(`document.getElementById('a-` + id + `-rollback') && !document.getElementById('a-` + id + `-flip')`)
	watching.when(`!document.documentElement.classList.contains('stale')`)
	watching.shot("flipped")

	c.Close()
	web.CloseClientConnections()
	watching.when(`document.documentElement.classList.contains('stale')`)
	watching.when(`/STALE since \d\d:\d\d:\d\d UTC/.test(document.getElementById('stale').innerText)`)
	watching.when(`getComputedStyle(document.querySelector('main')).filter.includes('grayscale')`)
	watching.shot("stale")
}

// unreadable lists texts whose colour is too near that of what is behind them (WCAG 2, 4.5 to 1).
const unreadable = `(() => {
  const rgb = (s) => (s.match(/[\d.]+/g) || []).map(Number);
  const lum = (c) => { const f = c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0.9) return c; } return [255, 255, 255]; };
  const out = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.nodeValue.trim() || !e.checkVisibility() || e.closest(':disabled, rect, title')) continue;
    const a = lum(rgb(getComputedStyle(e).color)), b = lum(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.add(e.className + ' ' + walk.currentNode.nodeValue.trim().slice(0, 30) + ' ' + ratio.toFixed(1));
  }
  return [...out].join('; ');
})()`

// In light and dark, on a wide and a narrow screen: every text can be read, and nothing sticks out of the page.
func TestBrowserLooks(t *testing.T) {
	b := browse(t)
	s := newStage(t)
	s.change(func(s *stage) {
		more := s.streams[0]
		more.Scope.Stream, more.Parity = "JOBS", nil
		s.streams = append(s.streams, more)
	})
	_, web := serve(t, s, Options{})
	b.open("about:blank")
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		noErr(t, err)
		for _, width := range []int64{1280, 480} {
			b.do(chromedp.EmulateViewport(width, 900))
			for name, path := range map[string]string{"overview": "", "plan": "/plan?scope=ORDERS&do=flip", "explain": "/explain?scope=ORDERS&seq=2"} {
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
	}
}

// A gate is done without by a reason that is typed in, and a rollback with a loss by the loss.
func TestBrowserForceAndEmergency(t *testing.T) {
	b := browse(t)
	s := newStage(t)
	_, web := serve(t, s, Options{})
	b.open(web.URL + "/console/plan?scope=ORDERS&do=flip")
	wants(t, b.text(), "Gates in the way that can be done without", "must pass")
	b.run(`document.getElementById('without').open = true`)
	b.do(chromedp.SendKeys(chromedp.ID("force-G11"), "ticket 7"))
	fill := func() {
		b.do(chromedp.SendKeys(chromedp.ID("name"), "ORDERS"))
		b.do(chromedp.SendKeys(chromedp.ID("by"), "me"))
		b.do(chromedp.SendKeys(chromedp.ID("reason"), "try"))
		b.do(chromedp.SendKeys(chromedp.ID("token"), token))
	}
	fill()
	b.press(kb.Enter) // in the field of the token
	b.when(`document.getElementById('result').innerText.includes('UNDO')`)
	if f := s.flips; len(f) != 1 || len(f[0].Force) != 1 || f[0].Force["G11"] != "ticket 7" {
		t.Fatalf("%+v", f)
	}

	s.change(func(s *stage) {
		s.streams[0].Back = face.RollbackCard{Possible: true, Lost: 4112, Duplicates: 3, Why: "the servers are away"}
	})
	b.do(chromedp.Navigate(web.URL + "/console"))
	b.when(`[...document.querySelectorAll('.actions a')].some(a => a.innerText.includes('Roll back with a loss'))`)
	b.do(chromedp.Navigate(web.URL + "/console/plan?scope=ORDERS&do=rollback+--emergency"))
	wants(t, b.text(), "Type lose 4112", "NOT LOSSLESS", "ehdbctl rollback --emergency --scope '$G/ORDERS'")
	b.shot("emergency")
	fill()
	b.when(`document.getElementById('do').disabled`)
	b.do(chromedp.SendKeys(chromedp.ID("phrase"), "lose 4112"))
	b.when(`!document.getElementById('do').disabled`)
	b.do(chromedp.Click(chromedp.ID("do")))
	b.when(`document.getElementById('result').innerText.includes('UNDO')`)
	if r := s.rollbacks; len(r) != 1 || !r[0].Emergency || r[0].MaxLoss != 4112 {
		t.Fatalf("%+v", r)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An engine that stands still while the connection is there is as stale.
func TestBrowserSilence(t *testing.T) {
	b := browse(t)
	s := newStage(t)
	_, web := serve(t, s, Options{})
	b.open(web.URL + "/console")
	b.when(`document.getElementById('following').textContent === 'Kept up to date.'`)
	s.mu.Lock() // nothing answers now
	b.when(`document.documentElement.classList.contains('stale')`)
	s.mu.Unlock()
	b.when(`!document.documentElement.classList.contains('stale') && document.getElementById('stale').hidden`)
}

// What the API gives to who has the token, and nobody else, is shown byte by byte.
func TestBrowserExplain(t *testing.T) {
	b := browse(t)
	_, web := serve(t, newStage(t), Options{})
	b.open(web.URL + "/console/explain?scope=ORDERS&seq=2")
	b.do(chromedp.SendKeys(chromedp.ID("token"), "wrong"+kb.Enter))
	b.when(`document.getElementById('result').innerText.includes("not the operator's token")`)
	b.do(chromedp.SendKeys(chromedp.ID("token"), token+kb.Enter))
	b.when(`document.querySelectorAll('mark').length === 2`) // w and W
	wants(t, b.text(), "74 57 6f", "74 77 6f")
	b.shot("explain")
}

// Without a script the page says the same.
func TestBrowserWithoutScript(t *testing.T) {
	b := browse(t)
	_, web := serve(t, newStage(t), Options{})
	b.open("about:blank")
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	noErr(t, err)
	b.do(chromedp.Navigate(web.URL + "/console"))
	got := b.text()
	wants(t, got, "SHADOW", "sequences that differ: 1", "Flip to EHDB", "match 399", "last rehearsed 3 h ago", "Without a script",
		"reversible until here", "ORDERS")
	b.shot("noscript")
	if ask(b, chromedp.Evaluate[int](`document.querySelectorAll('meta[http-equiv=refresh]').length`)) != 1 {
		t.Fatal("the page does not load itself anew")
	}
	b.do(chromedp.Navigate(web.URL + "/console/plan?scope=ORDERS&do=flip"))
	wants(t, b.text(), "7c1e55aa", "UNDO", "ehdbctl flip --scope '$G/ORDERS' --expect 7c1e55aa", "This needs a script")
}
