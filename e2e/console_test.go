package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestConsole: one page of a real browser, loaded once, shows a stream of a real nats-server in shadow, turns grey when the
// gateway is killed, and shows the stream as served from here when a gateway in bus mode ehdb has come and moved it.
func TestConsole(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("the console is ours")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	ns := startOracle(t, nil)
	dir, client, monitor := t.TempDir(), freePort(t), freePort(t)
	conf := writeFile(t, "console.conf", fmt.Sprintf(`ehdb { allow_tmp_store: true }
bus { upstream: [%q], profile: drill }`, ns.ClientURL()))
	start := func(mode string) *process {
		return startGateway(t, dir, "-c", conf, "--bus", mode, "-p", strconv.Itoa(client), "-m", strconv.Itoa(monitor))
	}
	p := start("shadow")
	js, err := jetstream.New(connect(t, p.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)))
	noErr(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	const n = 300
	for i := range n {
		_, err := js.Publish(t.Context(), fmt.Sprintf("orders.%d", i), []byte("secret-payload"))
		noErr(t, err)
	}

	tab := openTab(t, chromium, fmt.Sprintf("http://127.0.0.1:%d/console", monitor))
	tab.when(`document.querySelector('.rail [aria-current]')?.innerText.includes('SHADOW')`)
	tab.when(fmt.Sprintf(`document.getElementById('details').innerText.includes('examined %d = ')`, n))
	tab.when(`document.querySelectorAll('details.gate').length === 23`)
	tab.when(`document.querySelector('#streams td.n').innerText === '1–300'`)
	tab.when(`!document.documentElement.classList.contains('stale')`)
	tab.when(`!document.documentElement.outerHTML.includes('secret-payload')`)
	tab.do(chromedp.Evaluate[chromedp.Void](`window.same = true; undefined`))
	tab.shot("shadow")

	p.Kill()
	tab.when(`document.documentElement.classList.contains('stale')`)
	tab.shot("stale")
	p = start("ehdb")
	tab.when(`document.querySelector('.rail [aria-current]').innerText.includes('EHDB')`)
	tab.when(`!document.documentElement.classList.contains('stale') && window.same`)
	tab.when(`document.querySelector('section.back').innerText.includes('LOSSLESS')`)
	tab.when(`document.getElementById('timeline').innerText.includes('flip')`)
	tab.when(`[...document.querySelectorAll('.actions a')].some(a => a.innerText.includes('Roll back'))`)
	tab.shot("ehdb")
	noErr(t, p.Stop()) // a page that follows does not keep it up
	tab.when(`document.documentElement.classList.contains('stale')`)
}

// tab is a page of a browser.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it
	dir string
}

func openTab(t *testing.T, chromium, url string) *tab {
	t.Helper()
	dir := os.Getenv("EHDB_SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1400, 1000))...)
	t.Cleanup(stop)
	ctx, shut := chromedp.NewContext(ctx)
	t.Cleanup(shut)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits until it has ended
	noErr(t, chromedp.Do(ctx, chromedp.Navigate(url)))
	return &tab{t, ctx, dir}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	noErr(b.t, chromedp.Do(b.ctx, steps...))
}

// when waits for an expression to be true in the page.
func (b *tab) when(expr string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expr+")"))
		noErr(b.t, err)
		switch {
		case ok:
			return
		case time.Now().After(deadline):
			b.shot("failed")
			text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("%s does not become true: %v\n%s", expr, err, strings.Join(strings.Fields(text), " "))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *tab) shot(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	noErr(b.t, err)
	noErr(b.t, os.WriteFile(filepath.Join(b.dir, "console-"+name+".png"), png, 0o600))
}
