package tail

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// childEnv makes the test binary a process that writes to the log in the directory it names until it is killed.
const childEnv = "EHDB_TAIL_CHILD"

func killOptions(dir string) Options { return Options{Dir: dir, SegmentSize: 256 << 10} }

// killBody is what block lsn holds: anybody can tell.
func killBody(lsn LSN) []byte {
	rnd := rand.New(rand.NewPCG(uint64(lsn), 3))
	return bytes.Repeat([]byte(strconv.FormatUint(uint64(lsn), 10)+"."), 1+rnd.IntN(400))
}

// child appends and syncs and prints each position that is durable; every now and then it drops old segments.
func child() {
	fail := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	l, err := Open(killOptions(os.Getenv(childEnv)))
	if err != nil {
		fail(err)
	}
	var next LSN
	err = l.Replay(func(lsn LSN, _ Pos, _ []byte) error { next = lsn + 1; return nil })
	if err != nil {
		fail(err)
	}
	for ; ; next++ {
		if _, _, err := l.Append(killBody(next)); err != nil {
			fail(err)
		}
		if next%3 == 0 {
			continue
		}
		if err := l.Sync(); err != nil {
			fail(err)
		}
		fmt.Println("synced", next)
		if next%1000 == 999 {
			if err := l.DropBefore(next - 500); err != nil {
				fail(err)
			}
		}
	}
}

// TestKill kills a writing process with SIGKILL, round after round on the same directory, and demands every block
// that it said was durable.
func TestKill(t *testing.T) {
	rounds := 5
	if slow() {
		rounds = 100
	}
	dir := t.TempDir()
	var acked LSN
	for round := range rounds {
		if n := killOnce(t, dir); n > acked {
			acked = n
		}
		l, err := Open(killOptions(dir))
		must(t, err)
		next := l.First()
		if next > 0 && next+500 > acked {
			t.Fatalf("round %d: the log starts with block %d, synced were %d", round, next, acked)
		}
		must(t, l.Replay(func(lsn LSN, _ Pos, body []byte) error {
			if lsn != next || !bytes.Equal(body, killBody(lsn)) {
				return fmt.Errorf("want block %d, got block %d with %d bytes", next, lsn, len(body))
			}
			next++
			return nil
		}))
		if next < acked {
			t.Fatalf("round %d: %d blocks were synced, %d are there", round, acked, next)
		}
		must(t, l.Close())
	}
	t.Logf("%d rounds, %d blocks synced", rounds, acked)
	if acked == 0 {
		t.Fatal("nothing was written")
	}
}

// killOnce runs a child for a moment and returns how many blocks it said were durable.
func killOnce(t *testing.T, dir string) LSN {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var timer *time.Timer
	var acked LSN
	for lines := bufio.NewScanner(out); lines.Scan(); {
		num, ok := strings.CutPrefix(lines.Text(), "synced ")
		if !ok {
			t.Errorf("child: %s", lines.Text())
			continue
		}
		n, err := strconv.ParseUint(num, 10, 64)
		if err != nil {
			continue // the line it was killed in
		}
		acked = LSN(n) + 1
		if timer == nil {
			timer = time.AfterFunc(rand.N(150*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait() // killed
	return acked
}
