// Package keda looks, in Kubernetes, at the ScaledObjects that scale by consumers of streams: one that is paused or has
// no HPA does not scale, whatever it is told.
package keda

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Account is where Kubernetes puts what a pod's service account is known by.
const Account = "/var/run/secrets/kubernetes.io/serviceaccount"

// Client reads ScaledObjects of the pod's own namespace.
type Client struct {
	base, dir, namespace string
	http                 *http.Client
}

// InCluster returns a client with the service account in dir, of the API server that the environment names; nil: there
// is none, since this is not Kubernetes.
func InCluster(dir string, getenv func(string) string) (*Client, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, nil //nolint:nilnil // as it says
	}
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace")) //nolint:gosec // the pod's own
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt")) //nolint:gosec // the pod's own
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(dir, "ca.crt"))
	}
	const patience = 2 * time.Second
	return &Client{
		base: "https://" + net.JoinHostPort(host, port), dir: dir, namespace: strings.TrimSpace(string(namespace)),
		http: &http.Client{Timeout: patience, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}},
	}, nil
}

// Close ends its connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// object is a ScaledObject, as far as it is looked at.
type object struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Fallback *json.RawMessage `json:"fallback"`
		Triggers []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
	Status struct {
		HPA string `json:"hpaName"`
	} `json:"status"`
}

// ours reports whether it scales by consumers: by KEDA's own trigger, or by the lag page.
func (o *object) ours() bool {
	for _, t := range o.Spec.Triggers {
		if t.Type == "nats-jetstream" || strings.Contains(t.Metadata["url"], "/api/v1/lag/") {
			return true
		}
	}
	return false
}

// The annotations by which KEDA does not scale at all. With paused-scale-in it scales out.
var paused = []string{"autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"}

// Look returns how many ScaledObjects scale by consumers, and what is wrong with some of them.
func (c *Client) Look(ctx context.Context) (n int, problems []string, err error) {
	var list struct {
		Items []object `json:"items"`
	}
	at := "/apis/keda.sh/v1alpha1/namespaces/" + c.namespace + "/scaledobjects"
	if err := c.get(ctx, at, &list); err != nil {
		return 0, nil, err
	}
	for i := range list.Items {
		o := &list.Items[i]
		if !o.ours() {
			continue
		}
		n++
		say := func(what string) { problems = append(problems, o.Metadata.Name+" "+what) }
		for _, name := range paused {
			if v, is := o.Metadata.Annotations[name]; is && v != "false" {
				say("is paused (" + name + ")")
			}
		}
		if o.Spec.Fallback == nil {
			say("has no fallback")
		}
		at := "/apis/autoscaling/v2/namespaces/" + c.namespace + "/horizontalpodautoscalers/" + o.Status.HPA
		switch err := c.get(ctx, at, &struct{}{}); {
		case o.Status.HPA == "" || errors.Is(err, errNone):
			say("has no HPA")
		case err != nil:
			return n, problems, err
		}
	}
	return n, problems, nil
}

var errNone = errors.New("there is none")

func (c *Client) get(ctx context.Context, at string, v any) error {
	token, err := os.ReadFile(filepath.Join(c.dir, "token")) // it is exchanged now and then
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+at, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
		return json.NewDecoder(res.Body).Decode(v)
	case http.StatusNotFound:
		return fmt.Errorf("%s: %w", at, errNone)
	}
	return fmt.Errorf("%s: %s (deploy/kubernetes/autoscaling/rbac.yaml lets it)", at, res.Status)
}
