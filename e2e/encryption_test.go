package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// secretWords are what a client writes that must not be readable on a disk, each of another kind.
var secretWords = []string{
	"SecretStream", "SecretConsumer", "secretsubject", "secretpayload", "SecretHeader", "secretvalue", "secretmsgid",
	"secretdescription",
}

const (
	firstKey  = "the-first-key-of-all"
	secondKey = "the-second-key-of-all"
)

// keyConfig writes a configuration with these lines in jetstream {}.
func keyConfig(t *testing.T, dir, lines string) string {
	t.Helper()
	name := filepath.Join(dir, "key.conf")
	noErr(t, os.WriteFile(name, fmt.Appendf(nil, "jetstream {\nenabled: true\n%s\n}\n"+
		"ehdb { allow_tmp_store: true, seal_max_age: \"100ms\" }\n", lines), 0o600))
	return name
}

// readableWords returns which of secretWords can be read in which file below dir.
func readableWords(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	noErr(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a gateway that runs has removed it meanwhile
		}
		for _, w := range secretWords {
			if bytes.Contains(b, []byte(w)) || strings.Contains(name, w) {
				found[w] = name
			}
		}
		return err
	}))
	return found
}

// content returns the bytes of every file below dir, but for the lock.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	noErr(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		b, err := os.ReadFile(name)
		out[name] = string(b)
		return err
	}))
	return out
}

// writeSecrets publishes n messages and has a consumer take half of them.
func writeSecrets(t *testing.T, url string, n int) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, url))
	st, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "SecretStream", Subjects: []string{"secretsubject.>"}, Description: "secretdescription",
		Compression: jetstream.S2Compression,
	})
	noErr(t, err)
	c, err := st.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "SecretConsumer", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "secretsubject.a",
	})
	noErr(t, err)
	for i := range n {
		m := nats.NewMsg("secretsubject.a")
		m.Header.Set("SecretHeader", "secretvalue")
		m.Data = fmt.Appendf(nil, "secretpayload %d %0*d", i, i%300, i)
		_, err := js.PublishMsg(ctx, m, jetstream.WithMsgID(fmt.Sprintf("secretmsgid-%d-%d", time.Now().UnixNano(), i)))
		noErr(t, err)
	}
	batch, err := c.Fetch(n/2, jetstream.FetchMaxWait(5*time.Second))
	noErr(t, err)
	for m := range batch.Messages() {
		noErr(t, m.DoubleAck(ctx))
	}
	noErr(t, batch.Error())
}

// readSecrets checks that the stream has n messages, and the consumer what is left of them.
func readSecrets(t *testing.T, url string, n, acked int) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, url))
	st, err := js.Stream(ctx, "SecretStream")
	noErr(t, err)
	if got := st.CachedInfo().State.Msgs; got != uint64(n) {
		t.Fatalf("%d messages, want %d", got, n)
	}
	for seq := 1; seq <= n; seq++ {
		m, err := st.GetMsg(ctx, uint64(seq))
		if err != nil || !bytes.HasPrefix(m.Data, []byte("secretpayload ")) || m.Header.Get("SecretHeader") != "secretvalue" {
			t.Fatalf("message %d: %q, %v", seq, m.Data, err)
		}
	}
	c, err := st.Consumer(ctx, "SecretConsumer")
	noErr(t, err)
	if got := c.CachedInfo(); got.NumPending != uint64(n-acked) || got.AckFloor.Stream != uint64(acked) {
		t.Fatalf("consumer: %d pending, acked up to %d; want %d, %d", got.NumPending, got.AckFloor.Stream, n-acked, acked)
	}
}

// refusedStart starts the gateway with those lines, which it refuses with a text, and looks that no file was changed.
func refusedStart(t *testing.T, dir, lines, want string) {
	t.Helper()
	before := content(t, filepath.Join(dir, "ehdb"))
	p, err := launch(dir, "-c", keyConfig(t, dir, lines))
	if err == nil {
		p.Kill()
		t.Fatalf("with %q it starts", lines)
	}
	if !strings.Contains(p.Log(), want) {
		t.Fatalf("with %q: %v\n%s", lines, err, p.Log())
	}
	after := content(t, filepath.Join(dir, "ehdb"))
	for name, b := range before {
		if after[name] != b {
			t.Errorf("with %q %s was changed", lines, name)
		}
	}
}

// TestEncryption has a gateway encrypt what it stores, with a key from the environment. Nothing of it can be read in any
// file; the key shows nowhere; without it, or with another one, the gateway does not start and says why.
func TestEncryption(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	t.Setenv("E2E_JS_KEY", firstKey)
	for name, lines := range map[string]string{
		"plain": "", "aes": "key: $E2E_JS_KEY\ncipher: AES", "chacha": "ek: $E2E_JS_KEY", "chachapoly": "encryption_key: $E2E_JS_KEY, cipher: chachapoly",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "ehdb")
			conf := keyConfig(t, dir, lines)
			p := startGateway(t, dir, "-c", conf)
			writeSecrets(t, p.URL, 100)
			found := readableWords(t, data)
			time.Sleep(300 * time.Millisecond) // it is sealed meanwhile
			writeSecrets(t, p.URL, 100)
			p.Kill()
			maps.Copy(found, readableWords(t, data))
			p = startGateway(t, dir, "-c", conf)
			readSecrets(t, p.URL, 200, 100)
			if lines != "" {
				keyIsHidden(t, p)
			}
			noErr(t, p.Stop())
			maps.Copy(found, readableWords(t, data))
			if lines == "" {
				if len(found) != len(secretWords) {
					t.Fatalf("without a key only %v can be read: the test could not fail for the others", found)
				}
				return
			}
			if len(found) > 0 {
				t.Fatalf("can be read: %v", found)
			}
			refusedStart(t, dir, "", "no key is configured")
			refusedStart(t, dir, "key: "+secondKey, "encrypted with another key than the one configured")
			refusedStart(t, dir, "key: other, prev_key: "+secondKey, "encrypted with another key than the one configured")
			encryptedCtl(t, data)
		})
	}
}

// keyIsHidden looks for the key wherever the gateway tells something.
func keyIsHidden(t *testing.T, p *process) {
	t.Helper()
	for _, page := range []string{
		"/", "/varz", "/jsz?acc=$G&streams=1&consumers=1&config=1", "/connz?subs=1", "/healthz", "/metrics", "/accountz?acc=$G",
		"/debug/vars", "/expvarz",
	} {
		r, err := http.Get(p.Monitor + page)
		noErr(t, err)
		b, err := io.ReadAll(r.Body)
		noErr(t, err)
		noErr(t, r.Body.Close())
		if bytes.Contains(b, []byte(firstKey)) {
			t.Errorf("%s shows the key", page)
		}
	}
	if strings.Contains(p.Log(), firstKey) {
		t.Error("the log shows the key")
	}
}

// encryptedCtl has ehdbctl read an encrypted directory, with the key in the environment and in a file, and without.
func encryptedCtl(t *testing.T, data string) {
	t.Helper()
	bin := buildCtl(t)
	out, code := ctl(t, bin, "storage", "verify", data)
	if code != 2 || !strings.Contains(out, "EHDB_STORAGE_KEY") {
		t.Fatalf("without the key: exit code %d: %s", code, out)
	}
	file := filepath.Join(t.TempDir(), "key")
	noErr(t, os.WriteFile(file, []byte(firstKey+"\n"), 0o600))
	if out, code := ctl(t, bin, "storage", "verify", "--key-file", file, data); code != 0 {
		t.Fatalf("with a file: exit code %d: %s", code, out)
	}
	t.Setenv("EHDB_STORAGE_KEY", firstKey)
	for _, args := range [][]string{{"verify", data}, {"stat", data}, {"repair", data}} {
		if out, code := ctl(t, bin, append([]string{"storage"}, args...)...); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, out)
		}
	}
	got := dumped(t, bin, data, "$G/SecretStream")
	if len(got) != 200 || !strings.HasPrefix(got[7], "secretpayload") {
		t.Fatalf("dump gives %d messages, the seventh %q", len(got), got[7])
	}
}

// TestEncryptLater gives a gateway that has stored something a key: in a while nothing of it can be read.
func TestEncryptLater(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "ehdb")
	p := startGateway(t, dir, "-c", keyConfig(t, dir, ""))
	writeSecrets(t, p.URL, 100)
	time.Sleep(300 * time.Millisecond)
	p.Kill()
	if len(readableWords(t, data)) == 0 {
		t.Fatal("nothing can be read before")
	}
	p = startGateway(t, dir, "-c", keyConfig(t, dir, "key: "+firstKey))
	for end := time.Now().Add(20 * time.Second); len(readableWords(t, data)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("can still be read: %v\n%s", readableWords(t, data), p.Log())
		}
	}
	readSecrets(t, p.URL, 100, 50)
	for _, want := range []string{"is encrypted from now on", "is encrypted too"} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	noErr(t, p.Stop())
	refusedStart(t, dir, "", "no key is configured")
}

// TestKeyRotation changes the key, kills the gateway at any moment of the start that does it, and goes on: with the new
// key, and the one before it until the log says that it is not needed.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about our own files")
	}
	dir := t.TempDir()
	p := startGateway(t, dir, "-c", keyConfig(t, dir, "key: "+firstKey+", cipher: aes"))
	writeSecrets(t, p.URL, 60)
	p.Kill()
	both := "key: " + secondKey + ", prev_key: " + firstKey
	conf := keyConfig(t, dir, both)
	for range 12 {
		cmd := exec.Command(gatewayBin, "-a", "127.0.0.1", "-p", "-1", "-sd", dir, "-c", conf)
		noErr(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		noErr(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}
	p = startGateway(t, dir, "-c", conf)
	readSecrets(t, p.URL, 60, 30)
	writeSecrets(t, p.URL, 60)
	p.Kill()
	refusedStart(t, dir, "key: "+firstKey, "encrypted with another key than the one configured")
	p = startGateway(t, dir, "-c", keyConfig(t, dir, "key: "+secondKey))
	readSecrets(t, p.URL, 120, 60)
	noErr(t, p.Stop())
}
