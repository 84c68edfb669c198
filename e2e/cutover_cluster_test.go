package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// node is a nats-server of a cluster, a process.
type node struct {
	t             *testing.T
	bin, conf     string
	name          string
	client, pages int // ports
	cmd           *exec.Cmd
}

// buildNATS builds the nats-server of our go.mod, once.
func buildNATS(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(builtDir, "cluster-nats-server")
	natsBuilt.Do(func() {
		out, err := exec.Command("go", "build", "-o", bin, "github.com/nats-io/nats-server/v2").CombinedOutput()
		if err != nil {
			t.Fatalf("building nats-server: %v\n%s", err, out)
		}
	})
	return bin
}

var natsBuilt sync.Once

// startCluster starts nats-servers with JetStream that form a cluster.
func startCluster(t *testing.T, n int) []*node {
	t.Helper()
	bin, dir := buildNATS(t), t.TempDir()
	list, routes := make([]*node, n), make([]int, n)
	var urls []string
	for i := range list {
		list[i] = &node{t: t, bin: bin, name: fmt.Sprintf("n%d", i+1), client: freePort(t), pages: freePort(t)}
		routes[i] = freePort(t)
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", routes[i]))
	}
	for i, s := range list {
		s.conf = writeFile(t, s.name+".conf", fmt.Sprintf(`server_name: %s
listen: "127.0.0.1:%d"
http: "127.0.0.1:%d"
jetstream { store_dir: %q }
cluster { name: c, listen: "127.0.0.1:%d", routes: ["%s"] }
`, s.name, s.client, s.pages, filepath.Join(dir, s.name), routes[i], strings.Join(urls, `", "`)))
		s.start()
	}
	for _, s := range list {
		s.healthy()
	}
	return list
}

// healthy waits until the server is.
func (s *node) healthy() {
	s.t.Helper()
	until(s.t, s.name+" is healthy", time.Minute, func() error {
		resp, err := http.Get(s.page() + "/healthz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

func connectedJS(t *testing.T, url string) (nats.JetStreamContext, error) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Name("ehdb-gateway test"), nats.MaxReconnects(-1)) // a name that is no bypass
	if err != nil {
		return nil, err
	}
	t.Cleanup(nc.Close)
	return nc.JetStream()
}

func (s *node) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.client) }

func (s *node) page() string { return fmt.Sprintf("http://127.0.0.1:%d", s.pages) }

func (s *node) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.bin, "-c", s.conf)
	noErr(s.t, s.cmd.Start())
	cmd := s.cmd
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func (s *node) kill() {
	s.t.Helper()
	noErr(s.t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
}

// leader returns the node that leads a stream.
func leader(t *testing.T, js nats.JetStreamContext, cluster []*node, stream string) (found *node) {
	t.Helper()
	until(t, "a leader of "+stream, time.Minute, func() error {
		i, err := js.StreamInfo(stream)
		if err != nil {
			return err
		}
		for _, s := range cluster {
			if i.Cluster != nil && i.Cluster.Leader == s.name {
				found = s
				return nil
			}
		}
		return errors.New("none")
	})
	return found
}

// TestCutoverOfACluster moves streams of three replicas to the gateway and back while their leaders step down, and while
// nodes are killed and come back: every attempt succeeds or changes nothing, nothing is lost, no sequence is given twice,
// and at the end both sides are equal.
func TestCutoverOfACluster(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" || os.Getenv("EHDB_SLOW") == "" {
		t.Skip("takes minutes: set EHDB_SLOW=1")
	}
	cluster := startCluster(t, 3)
	var urls, pages []string
	for _, s := range cluster {
		urls, pages = append(urls, s.url()), append(pages, s.page())
	}
	b := startShadow(t, urls, pages)
	direct, err := connectedJS(t, strings.Join(urls, ","))
	noErr(t, err)
	l := startTraffic(t, b.URL, 3, 6)
	l.rest(1000)

	c := &clusterCutover{t, b, l, direct, cluster}
	for _, step := range []struct {
		what    string
		move    func(string) (face.Move, error)
		trouble func(string)
	}{
		{"step-down and flip", b.flip, c.stepDown},
		{"step-down and rollback", b.rollback, c.stepDown},
		{"kill and flip", b.flip, c.kill},
		{"kill and rollback", b.rollback, c.kill},
	} {
		c.move(step.what, step.move, step.trouble)
		l.rest(300)
	}
	l.finish()
	for _, name := range []string{"ORDERS", "JOBS"} {
		until(t, name+" is equal on both sides", time.Minute, func() error {
			s, err := b.stream(name)
			switch {
			case err != nil:
				return err
			case s.Authority != "nats" || s.NATS.Last != s.EHDB.Last || s.NATS.Messages != s.EHDB.Messages:
				return fmt.Errorf("%s has the say, NATS %+v, here %+v", s.Authority, s.NATS, s.EHDB)
			case s.Parity == nil || s.Parity.Counts.Examined == 0 || s.Parity.Counts.Diverged() > 0:
				return fmt.Errorf("parity %+v", s.Parity)
			}
			return nil
		})
	}
	if strings.Contains(b.Log(), "came around the gateway") {
		t.Error("somebody is said to have gone around the gateway")
	}
}

// clusterCutover is what the moves of one test share.
type clusterCutover struct {
	t       *testing.T
	b       *before
	l       *traffic
	direct  nats.JetStreamContext
	cluster []*node
}

// move moves both streams while something goes on with their servers, again until it succeeds.
func (c *clusterCutover) move(what string, move func(string) (face.Move, error), trouble func(stream string)) {
	c.t.Helper()
	for _, stream := range []string{"ORDERS", "JOBS"} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			trouble(stream)
		}()
		tries, said := 0, ""
		took := until(c.t, what+" of "+stream, 2*time.Minute, func() error {
			tries++
			m, err := move(stream)
			if err == nil {
				c.t.Logf("%s of %s: held %v, %d tries", what, stream, m.Fence, tries)
				return nil
			}
			if s := err.Error(); s != said {
				said = s
				c.t.Logf("%s of %s: %v", what, stream, err)
			}
			time.Sleep(200 * time.Millisecond)
			return err
		})
		<-done
		c.t.Logf("%s of %s took %v", what, stream, took.Round(time.Millisecond))
	}
}

// stepDown lets the leaders of a stream and its consumer step down, a few times.
func (c *clusterCutover) stepDown(stream string) {
	nc, err := nats.Connect(c.cluster[0].url(), nats.Name("ehdb-gateway test"))
	if err != nil {
		c.t.Error(err)
		return
	}
	defer nc.Close()
	for range 3 {
		for _, subject := range []string{"STREAM.LEADER.STEPDOWN." + stream, "CONSUMER.LEADER.STEPDOWN." + stream + ".W"} {
			_, _ = nc.Request("$JS.API."+subject, nil, time.Second) // there may be no leader just now
		}
		time.Sleep(150 * time.Millisecond)
	}
}

// kill kills the node that leads a stream, and starts it again a little later.
func (c *clusterCutover) kill(stream string) {
	s := leader(c.t, c.direct, c.cluster, stream)
	s.kill()
	time.Sleep(time.Second)
	s.start()
	until(c.t, s.name+" is back", time.Minute, func() error {
		i, err := c.direct.StreamInfo(stream)
		if err != nil {
			return err
		}
		if i.Cluster == nil || i.Cluster.Leader == "" {
			return errors.New("no leader")
		}
		for _, r := range i.Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("%s is not current", r.Name)
			}
		}
		return nil
	})
}
