package console

import (
	"context"
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
	wants(t, b.text(), "7c1e55aa", "UNDO ehdbctl rollback --scope stream=ORDERS", "hold publishes and pulls")
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
	wants(t, b.text(), "7c1e55aa", "UNDO", "ehdbctl flip --scope 'stream=$G/ORDERS' --expect 7c1e55aa", "This needs a script")
}
