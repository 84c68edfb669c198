package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// -sl finds a process by its id, and by its name where there is one of that name.
func TestSignalsByIDAndName(t *testing.T) {
	p := start(t)
	id := strconv.Itoa(p.cmd.Process.Pid)
	if _, errs, code := once(t, "-sl", "reload="+id); code != 0 {
		t.Errorf("reload: %q (%d)", errs, code)
	}
	p.awaitLog(`Trapped "hangup" signal`)
	if _, errs, code := once(t, "-sl", "quit="+id); code != 0 {
		t.Errorf("quit: %q (%d)", errs, code)
	}
	p.exit()
	// In a space of processes of its own, so that the name means no other on the machine.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), program)
	if err := os.Symlink(exe, bin); err != nil {
		t.Fatal(err)
	}
	script := `
		"$0" -sl reload && exit 1
		"$0" -a 127.0.0.1 -p -1 -l "$1" & pid=$!
		until grep -q "Server is ready" "$1"; do sleep 0.05; done
		"$0" -sl ldm=nonsense && exit 2
		"$0" -sl reload || exit 3
		until grep -q "Trapped .hangup. signal" "$1"; do sleep 0.05; done
		"$0" -sl term || exit 4
		wait $pid`
	c := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, bin, filepath.Join(t.TempDir(), "log"))
	c.Env = append(os.Environ(), asServer+"=1")
	out, err := c.CombinedOutput()
	if strings.Contains(string(out), "unshare:") {
		t.Skipf("no space of processes of its own to be had here: %s", out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSignalsFromTheCommandLine(t *testing.T) {
	for _, s := range []string{"term", "quit"} {
		p := start(t)
		if _, errs, code := once(t, "--signal", s+"="+p.pidFile()); code != 0 {
			t.Errorf("%s: %q (%d)", s, errs, code)
		}
		p.exit()
	}
	p := start(t)
	if _, errs, code := once(t, "-sl=stop="+p.pidFile()); code != 0 {
		t.Errorf("stop: %q (%d)", errs, code)
	}
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("stop: ended with %v", err)
	}
	for want, arg := range map[string]string{
		`unknown signal "dance"`:     "dance=1",
		"invalid pid: /no/such/file": "term=/no/such/file",
		"invalid signal parameters":  "term=1=2",
	} {
		if _, errs, code := once(t, "-sl", arg); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: %q (%d)", arg, errs, code)
		}
	}
}
