package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestMirrorAndSourceConfig(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.O {"name":"O","subjects":["o.>"],"max_msg_size":100,"allow_direct":true}
			STREAM.CREATE.P {"name":"P","subjects":["p.>"]}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"first_seq":5,"subjects":["m"]}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"subjects":["m"],"sources":[{"name":"P"}]}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"sources":[{"name":"P"}],"allow_msg_counter":true}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"allow_msg_counter":true}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"allow_atomic":true}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"allow_batched":true}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"allow_msg_schedules":true}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"subject_delete_marker_ttl":5000000000}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","consumer":{"name":"a.b","deliver_subject":"d"}}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","consumer":{"name":"a","deliver_subject":"d.*"}}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","consumer":{"name":"a","deliver_subject":"d"},"opt_start_seq":4}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","consumer":{"name":"a","deliver_subject":"d"},"filter_subject":"o.a"}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","filter_subject":"o.a","subject_transforms":[{"src":"o.b","dest":"x"}]}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","subject_transforms":[{"src":"o..b","dest":"x"}]}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","subject_transforms":[{"src":"o.*","dest":"x.$2"}]}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","subject_transforms":[{"src":"o.*","dest":"x.$1"},{"src":"o.a","dest":"y"}]}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"a.b"}}
			STREAM.CREATE.M {"name":"M","mirror":{}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"max_msg_size":50}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","filter_subject":"a..b"}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"},"pedantic":true}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"M"}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","external":{"api":"$JS.API","deliver":"d"}}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","external":{"api":"$JS.*.API","deliver":"d"}}}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O","external":{"api":"$JS.x.API","deliver":"d.>"}}}
			STREAM.CREATE.M {"name":"M","mirror_direct":true}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O"},{"name":"O"}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","filter_subject":">"},{"name":"O"}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":""}]}
			STREAM.CREATE.S {"name":"S","sources":[null]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"a b"}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O"}],"allow_msg_schedules":true}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","filter_subject":"o.a","subject_transforms":[{"src":"o.b","dest":"x"}]}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","subject_transforms":[{"src":"o..b","dest":"x"}]}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","subject_transforms":[{"src":"o.*","dest":"x.$2"}]}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","subject_transforms":[{"src":"o.*","dest":"x.$1"},{"src":"o.a","dest":"y"}]}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","consumer":{"name":"a"}}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","consumer":{"name":"a","deliver_subject":"d"}},{"name":"O","filter_subject":"","consumer":{"name":"a","deliver_subject":"e"}}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O"}],"max_msg_size":50}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"O","filter_subject":"a..b"}]}
			STREAM.CREATE.S {"name":"S","sources":[{"name":"S"}]}
			STREAM.CREATE.S {"name":"S","subjects":["o.a"],"sources":[{"name":"O"}]}
			STREAM.CREATE.T {"name":"T","sources":[{"name":"O","opt_start_seq":3},{"name":"P"}],"duplicate_window":1000000000}
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"}}
			STREAM.UPDATE.O {"name":"O","subjects":["o.>"],"max_msg_size":100,"allow_direct":true,"sources":[{"name":"T"}]}
			STREAM.UPDATE.O {"name":"O","subjects":["o.>"],"max_msg_size":100,"allow_direct":true,"sources":[{"name":"M"}]}
			STREAM.UPDATE.O {"name":"O","subjects":["o.>"],"max_msg_size":100,"allow_direct":true,"sources":[{"name":"T","filter_subject":"zz"}]}
			STREAM.UPDATE.M {"name":"M","mirror":{"name":"P"}}
			STREAM.UPDATE.M {"name":"M","mirror":{"name":"O","opt_start_seq":4}}
			STREAM.UPDATE.M {"name":"M","mirror":{"name":"O"},"description":"d"}
			STREAM.UPDATE.P {"name":"P","mirror":{"name":"O"}}
			STREAM.UPDATE.T {"name":"T","sources":[{"name":"P"},{"name":"P"}]}
			STREAM.UPDATE.T {"name":"T","sources":[{"name":"P"}]}
			STREAM.UPDATE.M {"name":"M","subjects":["m.>"]}
			STREAM.NAMES`)
	})
}

// change is api for calls whose answers show what is copied in the meantime: they only must succeed.
func change(t *testing.T, nc *nats.Conn, calls string) {
	t.Helper()
	var tr transcript
	api(t, nc, &tr, calls)
	for _, line := range tr.lines {
		if strings.Contains(line, `: {"error":{`) {
			t.Error(line)
		}
	}
}

// reaches waits until a stream's last sequence is last.
func reaches(t *testing.T, nc *nats.Conn, name string, last uint64) {
	t.Helper()
	within(t, 30*time.Second, func() error {
		var resp server.JSApiStreamInfoResponse
		noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.INFO."+name, ""), &resp))
		if resp.Error != nil {
			return resp.Error
		}
		if got := resp.State.LastSeq; got != last {
			return fmt.Errorf("stream %s ends at %d, want %d: %+v %+v", name, got, last, resp.Mirror, resp.Sources)
		}
		return nil
	})
}

// linked waits until a stream's mirror or first source has heard from its origin.
func linked(t *testing.T, nc *nats.Conn, name string) {
	t.Helper()
	within(t, 30*time.Second, func() error {
		var resp server.JSApiStreamInfoResponse
		noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.INFO."+name, ""), &resp))
		from := resp.Mirror
		if from == nil {
			from = resp.Sources[0]
		}
		if from.Active < 0 {
			return fmt.Errorf("stream %s has not heard from %s: %w", name, from.Name, from.Error)
		}
		return nil
	})
}

func within(t *testing.T, d time.Duration, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// identityText is the last field of a Nats-Stream-Source: a hash of when the origin was made.
var identityText = regexp.MustCompile(`(Nats-Stream-Source: [^ ]+ \d+ [^ ]+ [^ ]+ [^ ]+) [0-9A-Za-z]{8}\r`)

// dumpStream records every message of a stream, but for its time where it is a stream's own.
func dumpStream(t *testing.T, nc *nats.Conn, tr *transcript, name string) {
	t.Helper()
	var info server.JSApiStreamInfoResponse
	noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.INFO."+name, `{"deleted_details":true}`), &info))
	st := info.State
	tr.Add("%s: %d messages, %d bytes, %d..%d, deleted %v, %d subjects",
		name, st.Msgs, st.Bytes, st.FirstSeq, st.LastSeq, st.Deleted, st.NumSubjects)
	for seq := st.FirstSeq; seq <= st.LastSeq && st.Msgs > 0; seq++ {
		var m server.JSApiMsgGetResponse
		noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.MSG.GET."+name, fmt.Sprintf(`{"seq":%d}`, seq)), &m))
		if m.Error != nil {
			tr.Add("%d: %v", seq, m.Error)
			continue
		}
		header := identityText.ReplaceAllString(string(m.Message.Header), "$1 <identity>\r")
		tr.Add("%d: %s %q %s", m.Message.Sequence, m.Message.Subject, header, m.Message.Data)
	}
}

func TestMirror(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `STREAM.CREATE.O {"name":"O","subjects":["o.>"],"allow_direct":true,"allow_rollup_hdrs":true,"allow_msg_ttl":true}`)
		publish(t, nc, tr, "o.a 1 Nats-Msg-Id=1\no.b 2 K=v\no.c 3\no.a 4 Nats-Expected-Last-Sequence=3\no.d 5\no.e 6")
		api(t, nc, tr, `
			STREAM.MSG.DELETE.O {"seq":3}
			STREAM.PURGE.O {"filter":"o.a","keep":1}`)
		change(t, nc, `
			STREAM.CREATE.M {"name":"M","mirror":{"name":"O"}}
			STREAM.CREATE.F {"name":"F","mirror":{"name":"O","filter_subject":"o.a"},"storage":"memory"}
			STREAM.CREATE.X {"name":"X","mirror":{"name":"O","subject_transforms":[{"src":"o.a","dest":"x.a"},{"src":"o.b","dest":""}]}}
			STREAM.CREATE.Q {"name":"Q","mirror":{"name":"O","opt_start_seq":5}}
			STREAM.CREATE.Z {"name":"Z","mirror":{"name":"O","opt_start_seq":9}}`)
		reaches(t, nc, "M", 6)
		reaches(t, nc, "F", 4)
		reaches(t, nc, "X", 4)
		reaches(t, nc, "Q", 6)
		reaches(t, nc, "Z", 8)
		publish(t, nc, tr, "o.a 7 Nats-Rollup=sub\no.b 8 Nats-TTL=100s")
		reaches(t, nc, "M", 8)
		reaches(t, nc, "F", 7)
		reaches(t, nc, "X", 8)
		reaches(t, nc, "Q", 8)
		for _, name := range []string{"O", "M", "F", "X", "Q"} {
			dumpStream(t, nc, tr, name)
		}
		compareTimes(t, nc, "O", "M")
		api(t, nc, tr, `
			STREAM.INFO.M
			STREAM.INFO.F
			STREAM.INFO.X
			STREAM.PURGE.M {"filter":"o.b"}
			STREAM.MSG.DELETE.M {"seq":5}
			STREAM.UPDATE.M {"name":"M","mirror":{"name":"O"},"max_msgs":2}`)
		publish(t, nc, tr, "M nobody\no.z 9")
		reaches(t, nc, "Z", 9)
		dumpStream(t, nc, tr, "Z")
		reaches(t, nc, "M", 9)
		dumpStream(t, nc, tr, "M")
		// Promotion: it takes messages of its own from now on.
		api(t, nc, tr, `STREAM.UPDATE.M {"name":"M","subjects":["m"],"max_msgs":-1}`)
		publish(t, nc, tr, "m first\no.z 10\nm second Nats-Msg-Id=x\nm third Nats-Msg-Id=x")
		dumpStream(t, nc, tr, "M")
		api(t, nc, tr, "STREAM.INFO.M\nSTREAM.DELETE.O")
		publish(t, nc, tr, "o.a gone")
	})
}

// compareTimes demands that a mirror's messages have the times of its origin's.
func compareTimes(t *testing.T, nc *nats.Conn, origin, mirror string) {
	t.Helper()
	var a, b server.JSApiMsgGetResponse
	for seq := 7; seq <= 8; seq++ {
		body := fmt.Sprintf(`{"seq":%d}`, seq)
		noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.MSG.GET."+origin, body), &a))
		noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.MSG.GET."+mirror, body), &b))
		if !a.Message.Time.Equal(b.Message.Time) {
			t.Errorf("message %d: %v in the origin, %v in the mirror", seq, a.Message.Time, b.Message.Time)
		}
	}
}

// A mirror begins where its origin does, and follows it over gaps.
func TestMirrorOfTrimmedStream(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `STREAM.CREATE.O {"name":"O","subjects":["o"],"first_seq":100,"max_msgs":3}`)
		publish(t, nc, tr, strings.Repeat("o x\n", 6))
		change(t, nc, `STREAM.CREATE.M {"name":"M","mirror":{"name":"O"}}`)
		reaches(t, nc, "M", 105)
		dumpStream(t, nc, tr, "M")
		change(t, nc, `
			STREAM.PURGE.O
			STREAM.CREATE.E {"name":"E","mirror":{"name":"O"}}
			STREAM.CREATE.EF {"name":"EF","mirror":{"name":"O","filter_subject":"none"}}`)
		reaches(t, nc, "E", 105)
		reaches(t, nc, "EF", 105)
		for _, name := range []string{"O", "M", "E", "EF"} {
			dumpStream(t, nc, tr, name)
		}
		publish(t, nc, tr, "o y")
		reaches(t, nc, "M", 106)
		reaches(t, nc, "E", 106)
		for _, name := range []string{"O", "M", "E", "EF"} {
			dumpStream(t, nc, tr, name)
		}
	})
}

func TestSources(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.A {"name":"A","subjects":["a.>"]}
			STREAM.CREATE.B {"name":"B","subjects":["b.>"],"allow_rollup_hdrs":true}`)
		publish(t, nc, tr, "a.1 1 Nats-Msg-Id=one\na.2 2 Nats-Expected-Last-Sequence=1 K=v\na.1 3")
		change(t, nc, `
			STREAM.CREATE.S {"name":"S","subjects":["s.>"],"sources":[{"name":"A"}],"duplicate_window":60000000000}`)
		reaches(t, nc, "S", 3)
		publish(t, nc, tr, "s.own 4\ns.own dup Nats-Msg-Id=one\ns.own no Nats-Stream-Source=x")
		change(t, nc, `
			STREAM.UPDATE.S {"name":"S","subjects":["s.>"],"sources":[{"name":"A"},{"name":"B","subject_transforms":[{"src":"b.*","dest":"t.$1"}]}],"duplicate_window":60000000000}`)
		publish(t, nc, tr, "b.1 5 Nats-Rollup=sub\nb.x.y no\nb.2 6 Nats-Msg-Id=one\nb.3 7")
		reaches(t, nc, "S", 6)
		dumpStream(t, nc, tr, "S")
		// A source of a stream that has sources names the stream next to it.
		change(t, nc, `STREAM.CREATE.D {"name":"D","sources":[{"name":"S","filter_subject":"t.>"}]}`)
		reaches(t, nc, "D", 2)
		dumpStream(t, nc, tr, "D")
		api(t, nc, tr, `
			STREAM.INFO.S
			STREAM.INFO.D
			STREAM.PURGE.S
			STREAM.UPDATE.S {"name":"S","subjects":["s.>"],"sources":[{"name":"B","subject_transforms":[{"src":"b.*","dest":"t.$1"}]}],"duplicate_window":60000000000}`)
		publish(t, nc, tr, "a.1 not copied\nb.4 8")
		reaches(t, nc, "S", 7)
		dumpStream(t, nc, tr, "S")
		change(t, nc, `
			STREAM.CREATE.L {"name":"L","sources":[{"name":"A","opt_start_seq":3}]}
			STREAM.CREATE.K {"name":"K","sources":[{"name":"A","opt_start_time":"2100-01-01T00:00:00Z"}]}
			STREAM.CREATE.J {"name":"J","sources":[{"name":"A","subject_transforms":[{"src":"a.1","dest":"j.one"},{"src":"a.2","dest":""}]}]}`)
		reaches(t, nc, "L", 2)
		reaches(t, nc, "J", 4)
		linked(t, nc, "K")
		publish(t, nc, tr, "a.3 5")
		reaches(t, nc, "L", 3)
		reaches(t, nc, "K", 1)
		dumpStream(t, nc, tr, "L")
		dumpStream(t, nc, tr, "K")
		dumpStream(t, nc, tr, "J")
		api(t, nc, tr, "STREAM.INFO.J\nSTREAM.LIST")
	})
}

// A source that was removed and made again starts over; its stream had lost nothing, and gets all of the new one.
func TestSourceMadeAgain(t *testing.T) {
	t.Parallel()
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `STREAM.CREATE.A {"name":"A","subjects":["a"]}`)
		publish(t, nc, tr, "a 1\na 2\na 3")
		change(t, nc, `STREAM.CREATE.S {"name":"S","sources":[{"name":"A"}]}`)
		reaches(t, nc, "S", 3)
		api(t, nc, tr, "STREAM.DELETE.A")
		api(t, nc, tr, `STREAM.CREATE.A {"name":"A","subjects":["a"]}`)
		publish(t, nc, tr, "a new 1\na new 2")
		reaches(t, nc, "S", 5)
		dumpStream(t, nc, tr, "S")
	})
}

// A work queue that is full takes more once there is room: nothing is lost, and the order stays.
func TestSourceIntoFullWorkQueue(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.A {"name":"A","subjects":["a"]}
			STREAM.CREATE.W {"name":"W","sources":[{"name":"A"}],"retention":"workqueue","discard":"new","max_msgs":3}`)
		publish(t, nc, tr, "a 1\na 2\na 3\na 4\na 5")
		reaches(t, nc, "W", 3)
		js, err := nc.JetStream()
		noErr(t, err)
		sub, err := js.PullSubscribe("", "w", nats.BindStream("W"))
		noErr(t, err)
		for range 5 {
			list, err := sub.Fetch(1, nats.MaxWait(20*time.Second))
			noErr(t, err)
			tr.Add("%s", list[0].Data)
			noErr(t, list[0].AckSync())
		}
		dumpStream(t, nc, tr, "W")
	})
}

func TestSourcedCounters(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.A {"name":"A","subjects":["a.*"],"allow_msg_counter":true}
			STREAM.CREATE.B {"name":"B","subjects":["b.*"],"allow_msg_counter":true}
			STREAM.CREATE.S {"name":"S","subjects":["sum.*"],"allow_msg_counter":true,"sources":[{"name":"A","subject_transforms":[{"src":"a.*","dest":"sum.$1"}]}]}`)
		add := func(subject, by string) {
			m := nats.NewMsg(subject)
			m.Header.Set("Nats-Incr", by)
			a, err := nc.RequestMsg(m, 5*time.Second)
			noErr(t, err)
			tr.Add("%s %s: %s", subject, by, a.Data)
		}
		add("a.x", "5")
		add("a.x", "+2")
		reaches(t, nc, "S", 2)
		add("sum.x", "100")
		api(t, nc, tr, `
			STREAM.UPDATE.S {"name":"S","subjects":["sum.*"],"allow_msg_counter":true,"sources":[{"name":"A","subject_transforms":[{"src":"a.*","dest":"sum.$1"}]},{"name":"B","subject_transforms":[{"src":"b.*","dest":"sum.$1"}]}]}`)
		add("b.x", "-3")
		reaches(t, nc, "S", 4)
		add("a.x", "10")
		reaches(t, nc, "S", 5)
		dumpStream(t, nc, tr, "S")
	})
}

// What another server's source asks for, and gets: a consumer that suits the stream, and the stream's identity.
func TestConsumersOfSources(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		nc := connect(t, e.URL)
		api(t, nc, tr, `
			STREAM.CREATE.L {"name":"L","subjects":["l"]}
			STREAM.CREATE.W {"name":"W","subjects":["w"],"retention":"workqueue"}
			STREAM.CREATE.I {"name":"I","subjects":["i"],"retention":"interest"}`)
		publish(t, nc, tr, "l 1\nw 1\nw 2")
		ask := func(stream, identity string, change string) string {
			m := nats.NewMsg("$JS.API.CONSUMER.CREATE." + stream)
			m.Data = fmt.Appendf(nil, `{"stream_name":%q,"config":{"name":"JS_SRC_x","deliver_subject":"d","ack_policy":"none",`+
				`"ack_wait":79200000000000,"max_deliver":1,"idle_heartbeat":1000000000,"flow_control":true,"direct":true,`+
				`"sourcing":true,"inactive_threshold":10000000000,"deliver_policy":"all"%s}}`, stream, change)
			m.Header.Set("Nats-Required-Api-Level", "5")
			if identity != "" {
				m.Header.Set("Nats-Stream-Identity", identity)
			}
			a, err := nc.RequestMsg(m, 5*time.Second)
			noErr(t, err)
			was := a.Header.Get("Nats-Stream-Identity")
			body := string(a.Data)
			if was != "" {
				body = strings.ReplaceAll(body, was, "<identity>")
			}
			body = regexp.MustCompile(`JS_SRC_x-[0-9A-Za-z]{8}`).ReplaceAllString(body, "JS_SRC_x-<id>")
			body = regexp.MustCompile(`does not match: [0-9A-Za-z]{8}`).ReplaceAllString(body, "does not match: <identity>")
			tr.Raw(fmt.Sprintf("%s %t %s (%d)", stream, identity != "", change, len(was)), []byte(body))
			return was
		}
		for _, stream := range []string{"L", "W", "I"} {
			identity := ask(stream, "", "")
			ask(stream, "other", "")
			ask(stream, identity, "")
			ask(stream, identity, `,"durable_name":"JS_SRC_x"`)
			api(t, nc, tr, "CONSUMER.NAMES."+stream)
		}
		api(t, nc, tr, "STREAM.INFO.W\nCONSUMER.DELETE.W.JS_SRC_x")
	})
}
