package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// writePid writes the pid file; none if path is empty.
func writePid(path string) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o640); err != nil {
		return fmt.Errorf("could not write pidfile: %w", err)
	}
	return nil
}

// removePid removes the pid file if it names this process: left behind, it would point -sl at a stranger.
func removePid(path string) error {
	if b, err := os.ReadFile(path); err != nil || string(b) != strconv.Itoa(os.Getpid()) {
		return nil //nolint:nilerr // no pid file of ours
	}
	return removeFile(path)
}

// removeFile removes a file that may not be there; "" is none.
func removeFile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// portsFile is the name of the ports file in dir; "" if there is to be none.
func portsFile(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, fmt.Sprintf("%s_%d.ports", filepath.Base(os.Args[0]), os.Getpid()))
}

// writePorts writes the addresses listened on. It is written beside its place and moved there, so that who waits for
// the file never reads half of it.
func writePorts(path string, o *server.Options, client, web, monitor []net.Addr) error {
	if path == "" {
		return nil
	}
	nats, http := "nats", "http"
	if o.TLSConfig != nil && !o.AllowNonTLS {
		nats = "tls"
	}
	if o.HTTPSPort != 0 {
		http = "https"
	}
	ws := "ws"
	if o.Websocket.TLSConfig != nil {
		ws = "wss"
	}
	ports := server.Ports{Nats: urls(nats, client), WebSocket: urls(ws, web), Monitoring: urls(http, monitor)}
	b, err := json.Marshal(ports)
	if err != nil {
		return fmt.Errorf("ports file: %w", err)
	}
	if err := os.WriteFile(path+".tmp", b, 0o666); err != nil {
		return fmt.Errorf("ports file: %w", err)
	}
	return os.Rename(path+".tmp", path)
}

// known is addr if there is one.
func known(addr net.Addr) []net.Addr {
	if addr == nil {
		return nil
	}
	return []net.Addr{addr}
}

// urls lists addrs as URLs; an unspecified address becomes one for each of the machine's.
func urls(scheme string, addrs []net.Addr) []string {
	var out []string
	for _, a := range addrs {
		host, port, err := net.SplitHostPort(a.String())
		if err != nil {
			continue
		}
		hosts := []string{host}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			hosts = localHosts()
		}
		for _, h := range hosts {
			out = append(out, scheme+"://"+net.JoinHostPort(h, port))
		}
	}
	return out
}

// localHosts are the machine's unicast addresses.
func localHosts() []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []string{"127.0.0.1"}
	}
	var out []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}
