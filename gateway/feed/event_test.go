package feed

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// parsed is an event as the algorithm of the standard reads it (WHATWG HTML, 9.2.6): lines end with CR, LF or both, a
// space after the colon is cut, the last line feed of the data too.
type parsed struct{ name, id, data string }

func parseEvents(stream string) []parsed {
	var out []parsed
	var e parsed
	var data strings.Builder
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n"), "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data.Len() > 0 {
				e.data = strings.TrimSuffix(data.String(), "\n")
				out = append(out, e)
			}
			e = parsed{id: e.id}
			data.Reset()
		case field == "event":
			e.name = value
		case field == "id" && !strings.Contains(value, "\x00"):
			e.id = value
		case field == "data":
			data.WriteString(value + "\n")
		}
	}
	return out
}

func checkMessage(t *testing.T, m *Message) {
	t.Helper()
	raw := parseEvents(string(appendMessage(nil, m, formatRaw)))
	inJSON := parseEvents(string(appendMessage(nil, m, formatJSON)))
	if len(raw) != 1 || len(inJSON) != 1 || raw[0].id != "7" || inJSON[0].id != "7" || inJSON[0].name != "" {
		t.Fatalf("%q: %+v, %+v", m.Data, raw, inJSON)
	}
	switch raw[0].name {
	case "":
		if raw[0].data != string(m.Data) {
			t.Fatalf("%q became %q", m.Data, raw[0].data)
		}
	case "binary":
		inJSON = append(inJSON, raw[0])
	default:
		t.Fatalf("event %q", raw[0].name)
	}
	for _, e := range inJSON {
		var got struct {
			Seq     uint64
			Subject string
			Time    time.Time
			Data    *string `json:"data"`
			Base64  []byte  `json:"data_base64"`
		}
		if err := json.Unmarshal([]byte(e.data), &got); err != nil {
			t.Fatal(err)
		}
		data := got.Base64
		if got.Data != nil {
			data = []byte(*got.Data)
		}
		if string(data) != string(m.Data) || got.Seq != 7 || got.Subject != "a.b" || !got.Time.Equal(m.Time) ||
			(got.Data != nil) != utf8.Valid(m.Data) {
			t.Fatalf("%q became %s", m.Data, e.data)
		}
	}
}

func message(data string) *Message {
	return &Message{Seq: 7, Time: time.Unix(1, 5), Subject: []byte("a.b"), Data: []byte(data)}
}

var payloads = []string{
	"", "x", " x", ": x", "a\nb", "\n", "\n\n", "a\n", "a\r\nb", "a\rb", "\xff", "é\u2028", `{"a":"b"}`, "\x00", "data: x\n\n",
	"\ufeffx",
}

func TestMessagesComeOutAsTheyWentIn(t *testing.T) {
	for _, data := range payloads {
		checkMessage(t, message(data))
	}
}

func FuzzMessage(f *testing.F) {
	for _, data := range payloads {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) { checkMessage(t, message(data)) })
}

func TestHeaders(t *testing.T) {
	m := message("x")
	m.Header = []byte("NATS/1.0\r\nA: 1\r\nB:2\r\nA: three: 3\r\n\r\n")
	got := parseEvents(string(appendMessage(nil, m, formatJSON)))[0].data
	if want := `"headers":{"A":["1","three: 3"],"B":["2"]}`; !strings.Contains(got, want) {
		t.Errorf("%s", got)
	}
}
