package stream

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// patterns are schedules, good and bad.
var patterns = []string{
	"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@Hourly", "@reboot", "@every", "@at",
	"@every 1s", "@every 1h30m", "@every 999ms", "@every -1h", "@every 5", "@every 1000h", "@every  1h", "@every 1.5s",
	"@at 2100-01-02T03:04:05Z", "@at 2100-01-02T03:04:05.678+09:00", "@at 2100-01-02", "@at 2100-13-01T00:00:00Z", "@at now",
	"0 0 0 1 1 *", "* * * * *", "* * * * * * *", "0 0 12 * * MON-FRI", "0 0 12 * * mon,wed,FRI", "0 0 12 * JAN,jun *",
	"0 0 12 * * 7", "0 0 12 * * 0", "0 0 24 * * *", "60 0 0 * * *", "0 60 0 * * *", "0 0 0 0 * *", "0 0 0 32 * *",
	"0 0 0 31 2 *", "0 0 0 29 2 *", "0 0 0 30 2 MON", "0 0 0 1 13 *", "0 0 0 1 0 *", "*/15 */5 * * * *", "5/20 * * * * *",
	"10-20/3 * * * * *", "20-10 * * * * *", "*/0 * * * * *", "1--2 * * * * *", "1-2-3 * * * * *", "1/2/3 * * * * *",
	"? ? ? ? ? ?", "0 0 0 ? * MON", "0 0 0 13 * FRI", "0 0 0 */2 * MON", "0 0 0 */1 * MON", ", 0 0 * * *", "0 , 0 * * *",
	"0 0 , * * *", "0 0 0 , * *", "0 0 0 * , *", "0 0 0 * * ,", "0 0 0 , * ,", "1, 0 0 * * *", "-1 0 0 * * *", "+1 0 0 * * *",
	"1_0 0 0 * * *", "0x1 0 0 * * *", " 0  0 0 * *\t* ", "TZ=UTC 0 0 0 * * *", "TZ=UTC 0 0 0 * *", "TZ=UTC",
	"CRON_TZ=Asia/Tokyo 0 0 0 * * *", "0 0 0 * * MONDAY", "0 0 0 L * *", "*/99999999999999999999 * * * * *", "*/9223372036854775807 * * * * *",
	"0 0 0 * * * ", "0-59 0-59 0-23 1-31 1-12 0-6", "59 59 23 31 12 *", "0 0 0 1-31/10 * *", "* 0/30 8-18/2 * * 1-5",
}

func randomPattern(r *rand.Rand) string {
	field := func(low, high int) string {
		var parts []string
		for range 1 + r.IntN(2) {
			a, b := low+r.IntN(high-low+2), low+r.IntN(high-low+2)
			parts = append(parts, []string{
				"*", "*", fmt.Sprint(a), fmt.Sprintf("%d-%d", min(a, b), max(a, b)), fmt.Sprintf("*/%d", b), fmt.Sprintf("%d/%d", a, b),
				fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+r.IntN(4)),
			}[r.IntN(7)])
		}
		return strings.Join(parts[:1+r.IntN(len(parts))], ",")
	}
	return strings.Join([]string{field(0, 59), field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)}, " ")
}

// scheduled is what nats-server noted of a schedule.
type scheduled struct {
	due int64
	seq uint64
}

// TestFireTimesAsNATS has nats-server take schedules, and compares which it takes and for when with the file that it
// leaves.
func TestFireTimesAsNATS(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's choice
	all := patterns
	for range 400 {
		all = append(all, randomPattern(r))
	}
	// Zones whose clocks are not put forward at midnight; for those see TestMidnightThatIsNot.
	zones := []string{"", "", "America/New_York", "Europe/Amsterdam", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Chatham"}
	type publication struct {
		pattern, zone string
		stored        time.Time // zero: refused
	}
	var pubs []publication
	theirs := withNATS(t, func(nc *nats.Conn, js nats.JetStreamContext) {
		for i, pattern := range all {
			p := publication{pattern: pattern, zone: zones[r.IntN(len(zones))]}
			m := nats.NewMsg(fmt.Sprintf("s.%d", i))
			m.Header.Set("Nats-Schedule", pattern)
			m.Header.Set("Nats-Schedule-Target", "s.t")
			if p.zone != "" {
				m.Header.Set("Nats-Schedule-Time-Zone", p.zone)
			}
			if ack, err := js.PublishMsg(m); err == nil {
				stored, err := js.GetMsg("S", ack.Sequence)
				if err != nil {
					t.Fatal(err)
				}
				p.stored = stored.Time
			}
			pubs = append(pubs, p)
		}
	})
	stopped := time.Now()
	taken := 0
	for i, p := range pubs {
		var zone *time.Location
		if p.zone != "" {
			var err error
			if zone, err = time.LoadLocation(p.zone); err != nil {
				t.Fatal(err)
			}
		}
		from := p.stored
		if from.IsZero() {
			from = time.Now()
		}
		// A client trims what surrounds a value.
		fire, ok := nextFire(strings.TrimSpace(p.pattern), zone, from, from)
		if ok != !p.stored.IsZero() {
			t.Errorf("%q in %q: we take it: %v, nats-server does: %v", p.pattern, p.zone, ok, !ok)
			continue
		}
		if !ok {
			continue
		}
		taken++
		if fire.at.Before(stopped) && fire.repeats { // it has fired, and nats-server noted the time after that
			continue
		}
		if got, want := fire.at.UnixNano(), theirs[fmt.Sprintf("s.%d", i)].due; got != want {
			t.Errorf("%q in %q from %s: we fire at %s, nats-server at %s", p.pattern, p.zone, from, fire.at, time.Unix(0, want))
		}
	}
	if taken < 100 || taken != len(theirs) {
		t.Errorf("%d patterns were taken, nats-server noted %d", taken, len(theirs))
	}
}

// withNATS runs fn on a nats-server and returns the schedules that it wrote down as it stopped.
func withNATS(t *testing.T, fn func(*nats.Conn, nats.JetStreamContext)) map[string]scheduled {
	t.Helper()
	dir := t.TempDir()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	create := []byte(`{"name":"S","subjects":["s.>"],"storage":"file","num_replicas":1,"allow_msg_schedules":true}`)
	if _, err := nc.Request("$JS.API.STREAM.CREATE.S", create, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	fn(nc, js)
	srv.Shutdown()
	srv.WaitForShutdown()
	buf, err := os.ReadFile(filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs", "sched.db")) //nolint:gosec // ours
	if err != nil {
		t.Fatal(err)
	}
	return decodeSchedules(t, buf)
}

func decodeSchedules(t *testing.T, buf []byte) map[string]scheduled {
	t.Helper()
	out := map[string]scheduled{}
	count := binary.LittleEndian.Uint64(buf[1:])
	buf = buf[17:]
	for range count {
		n := int(binary.LittleEndian.Uint16(buf))
		subject := string(buf[2 : 2+n])
		due, dueLen := binary.Varint(buf[2+n:])
		seq, seqLen := binary.Uvarint(buf[2+n+dueLen:])
		out[subject] = scheduled{due: due, seq: seq}
		buf = buf[2+n+dueLen+seqLen:]
	}
	return out
}

// TestMidnightThatIsNot is where we differ from nats-server: a day whose clocks start at one. There, nats-server goes on
// from one o'clock for the rest of the month, and misses what is due between midnight and one; what is due only then it
// refuses.
func TestMidnightThatIsNot(t *testing.T) {
	const name, pattern = "America/Santiago", "0 30 0 15 9 *" // September has such a day there
	theirs := withNATS(t, func(nc *nats.Conn, js nats.JetStreamContext) {
		m := nats.NewMsg("s.a")
		m.Header = nats.Header{
			"Nats-Schedule": {pattern}, "Nats-Schedule-Time-Zone": {name}, "Nats-Schedule-Target": {"s.t"},
		}
		_, err := js.PublishMsg(m)
		t.Logf("nats-server: %v", err)
	})
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	want := time.Date(now.Year(), 9, 15, 0, 30, 0, 0, zone)
	if want.Before(now) {
		want = want.AddDate(1, 0, 0)
	}
	fire, ok := nextFire(pattern, zone, now, now)
	if !ok || !fire.at.Equal(want) {
		t.Errorf("got %s %v, want %s", fire.at, ok, want)
	}
	if got := theirs["s.a"].due; got == want.UnixNano() {
		t.Error("nats-server does as we do: the line about it in docs/parity.md can go")
	}
}

func TestMissedFiresAreLeftOut(t *testing.T) {
	from := time.Date(2025, 1, 1, 0, 0, 0, 5e8, time.UTC)
	now := from.Add(100*time.Hour + 200*time.Millisecond)
	for pattern, want := range map[string]time.Time{
		"@every 1h":                now.Round(time.Second).Add(time.Hour),
		"@hourly":                  time.Date(2025, 1, 5, 5, 0, 0, 0, time.UTC),
		"0 30 2 * * *":             time.Date(2025, 1, 6, 2, 30, 0, 0, time.UTC),
		"@every 200h":              from.Round(time.Second).Add(200 * time.Hour),
		"* * * * * *":              time.Date(2025, 1, 5, 4, 0, 2, 0, time.UTC),
		"0 0 0 1 6 *":              time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC),
		"@at 2025-01-02T00:00:00Z": time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC),
	} {
		if fire, ok := nextFire(pattern, nil, from, now); !ok || !fire.at.Equal(want) {
			t.Errorf("%s: got %s %v, want %s", pattern, fire.at, ok, want)
		}
	}
}

func TestFarTimes(t *testing.T) {
	for text, want := range map[string]int64{
		"1000-01-01T00:00:00Z": math.MinInt64, "9000-01-01T00:00:00Z": math.MaxInt64, "1970-01-01T00:00:01Z": 1e9,
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := unixNano(at); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}

func FuzzNextFire(f *testing.F) {
	for _, p := range patterns {
		f.Add(p, "", int64(0))
		f.Add(p, "Europe/Amsterdam", int64(1e18))
	}
	f.Fuzz(func(t *testing.T, pattern, name string, from int64) {
		var zone *time.Location
		if name != "" {
			var err error
			if zone, err = time.LoadLocation(name); err != nil {
				return
			}
		}
		start := time.Unix(0, from)
		fire, ok := nextFire(pattern, zone, start, start)
		if ok && fire.repeats && !fire.at.After(start) {
			t.Errorf("%q repeats at %s, which is not after %s", pattern, fire.at, start)
		}
	})
}
