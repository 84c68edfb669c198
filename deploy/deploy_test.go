// Package deploy tests the files that people deploy with.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/noetl/ehdb-gateway/internal/config"
)

// object is what is looked at of a Kubernetes object.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Resources  []string
	Spec       map[string]any
}

// objects returns the objects of a file.
func objects(t *testing.T, name string) (all []object) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, o)
	}
}

func TestManifestsAreWhole(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("kubernetes", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		for _, o := range objects(t, path) {
			seen++
			if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" && o.Kind != "Kustomization" {
				t.Errorf("%s: %+v is no object", path, o)
			}
			for _, r := range o.Resources {
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), r)); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
		return nil
	})
	if err != nil || seen < 10 {
		t.Fatalf("%d objects (%v)", seen, err)
	}
}

// at walks down a decoded document; numbers index lists.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch k := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[k]
		case int:
			l, _ := v.([]any)
			if k >= len(l) {
				t.Fatalf("nothing at %v", path)
			}
			v = l[k]
		}
		if v == nil {
			t.Fatalf("nothing at %v", path)
		}
	}
	return v
}

// TestStatefulSetFitsConfiguration: ports, paths and times are those of the configuration beside it.
func TestStatefulSetFitsConfiguration(t *testing.T) {
	t.Setenv("SERVER_NAME", "ehdb-gateway-0")
	c, err := config.Load([]string{"-c", "kubernetes/base/nats.conf"}, config.Environ)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings: %q", c.Warnings)
	}
	pod := at(t, objects(t, "kubernetes/base/statefulset.yaml")[0].Spec, "template", "spec")
	grace, _ := at(t, pod, "terminationGracePeriodSeconds").(int)
	if need := c.Server.LameDuckDuration.Seconds() + c.Server.LameDuckGracePeriod.Seconds(); float64(grace) < need+30 {
		t.Errorf("%d s to stop, lame duck alone takes %v s", grace, need)
	}
	ports := map[string]int{"nats": c.Server.Port, "monitor": c.Server.HTTPPort, "metrics": c.EHDB.MetricsPort}
	for i := range ports {
		found := false
		for _, p := range at(t, pod, "containers", 0, "ports").([]any) { //nolint:forcetypeassert // a test
			found = found || at(t, p, "name") == i && at(t, p, "containerPort") == ports[i]
		}
		if !found {
			t.Errorf("port %s is not %d", i, ports[i])
		}
	}
	mounts := at(t, pod, "containers", 0, "volumeMounts")
	if dir := at(t, mounts, 1, "mountPath"); c.Server.StoreDir != dir {
		t.Errorf("store_dir is %s, the volume is at %v", c.Server.StoreDir, dir)
	}
	stop := at(t, pod, "containers", 0, "lifecycle", "preStop", "exec", "command", 1)
	if !strings.HasSuffix(stop.(string), c.Server.PidFile) { //nolint:forcetypeassert // a test
		t.Errorf("preStop %v, pid_file %s", stop, c.Server.PidFile)
	}
}
