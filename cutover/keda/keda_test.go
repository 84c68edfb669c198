package keda

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const objects = `{"items": [
 {"metadata": {"name": "good"}, "spec": {"fallback": {"replicas": 2}, "triggers": [{"type": "nats-jetstream"}]}, "status": {"hpaName": "there"}},
 {"metadata": {"name": "held", "annotations": {"autoscaling.keda.sh/paused": "true", "autoscaling.keda.sh/paused-scale-in": "true"}},
  "spec": {"fallback": {}, "triggers": [{"type": "metrics-api", "metadata": {"url": "http://gw:8222/api/v1/lag/$G/S/c"}}]}, "status": {"hpaName": "there"}},
 {"metadata": {"name": "bare"}, "spec": {"triggers": [{"type": "cron"}, {"type": "nats-jetstream"}]}, "status": {"hpaName": "gone"}},
 {"metadata": {"name": "new"}, "spec": {"fallback": {}, "triggers": [{"type": "nats-jetstream"}]}},
 {"metadata": {"name": "other"}, "spec": {"triggers": [{"type": "cron"}]}}]}`

// What is wrong with ScaledObjects that scale by consumers is seen with the pod's service account; others are passed over,
// and what may not be read is an error that says so.
func TestLook(t *testing.T) {
	dir, allowed := t.TempDir(), true
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case !allowed:
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/apis/keda.sh/v1alpha1/namespaces/bus/scaledobjects":
			_, _ = w.Write([]byte(objects))
		case r.URL.Path == "/apis/autoscaling/v2/namespaces/bus/horizontalpodautoscalers/there":
			_, _ = w.Write([]byte(`{}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(api.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	for name, text := range map[string]string{"token": "secret\n", "namespace": "bus", "ca.crt": string(ca)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KUBERNETES_SERVICE_HOST": at.Hostname(), "KUBERNETES_SERVICE_PORT": at.Port()}
	c, err := InCluster(dir, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	n, problems, err := c.Look(t.Context())
	want := []string{"held is paused (autoscaling.keda.sh/paused)", "bare has no fallback", "bare has no HPA", "new has no HPA"}
	if n != 4 || err != nil || !slices.Equal(problems, want) {
		t.Errorf("%d %q %v", n, problems, err)
	}
	allowed = false
	if _, _, err := c.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "403 Forbidden (deploy/kubernetes/autoscaling/rbac.yaml") {
		t.Error(err)
	}
	if c, err := InCluster(dir, func(string) string { return "" }); c != nil || err != nil {
		t.Error(c, err)
	}
	if _, err := InCluster(t.TempDir(), func(name string) string { return env[name] }); err == nil {
		t.Error("there is no service account")
	}
}
