package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

func (c *remote) bypassCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bypass", Short: "See who goes around the gateway, and make that impossible", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "ls", Short: "List the connections to the servers that do not come by the gateway",
		Long: `List the connections to the servers that do not come by the gateway, as the servers' monitoring pages
show them (bus.monitor).

Exit code: 0 nobody, 2 somebody, 3 it is not known, 1 the gateway could not be asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if err := c.show(w, st.Bypass, func() { printBypass(w, st.Bypass) }); err != nil {
				return err
			}
			code := 0
			for i := range st.Bypass {
				b := &st.Bypass[i]
				switch {
				case len(b.Around) > 0:
					return &exitError{code: exitNoGo}
				case b.Unknown != "":
					code = exitNotEnough
				}
			}
			if code != 0 || len(st.Bypass) == 0 {
				return &exitError{code: exitNotEnough}
			}
			return nil
		},
	})
	user := ""
	fence := &cobra.Command{
		Use: "fence", Short: "Print what makes the servers refuse a user who goes around the gateway",
		Long: `Print what makes the servers refuse a user who goes around the gateway: proxy_required (nats-server 2.12
and later). The gateway does not change the servers: put it into their configuration and reload them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				return errors.New("--user is missing: whom shall the servers let in by the gateway alone?")
			}
			w, text := cmd.OutOrStdout(), fmt.Sprintf(fenceText, user)
			return c.show(w, struct {
				User string `json:"user"`
				Text string `json:"text"`
			}{user, text}, func() { fmt.Fprint(w, text) })
		},
	}
	fence.Flags().StringVar(&user, "user", "", "the user's name on the servers")
	cmd.AddCommand(fence)
	return cmd
}

const fenceText = `# 1. a key for the gateway, if it has none yet:
#      nk -gen server > proxy.nk; nk -inkey proxy.nk -pubout
# 2. gateway:      bus { proxy_key_file: "/etc/ehdb/proxy.nk" }
# 3. nats-server:  its public half, and for the user proxy_required:
proxies { trusted = [ { key: "N..." } ] }
authorization { users = [ { user: %[1]q, password: "...", proxy_required: true } ] }
# 4. nats-server --signal reload, then: ehdbctl bypass ls
#    UNDO: proxy_required: false for %[1]q, and reload
`

func printBypass(w io.Writer, list []face.BypassState) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range list {
		b := &list[i]
		switch {
		case b.Unknown != "":
			fmt.Fprintf(t, "account %s: not known: %s\n", b.Account, b.Unknown)
			continue
		case len(b.Around) == 0:
			fmt.Fprintf(t, "account %s: all %d connections come by the gateway\n", b.Account, b.Total)
			continue
		}
		fmt.Fprintf(t, "account %s: %d of %d connections go around the gateway\n", b.Account, len(b.Around), b.Total)
		fmt.Fprintln(t, "KIND\tADDRESS\tNAME\tUSER\tCLIENT\tSERVER\tSINCE")
		for _, d := range b.Around {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Kind, d.Addr, dash(d.Name), dash(d.User),
				dash(strings.TrimSpace(d.Lang+" "+d.Version)), d.Server, day(d.Since))
		}
	}
	_ = t.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func day(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}

func (c *remote) reverseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reverse", Short: "See how the servers are kept equal to streams that are served from here",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "status", Short: "Show how far the servers are, and what a rollback would cost now",
		Long: `Show how far the servers are, and what a rollback would cost now.

Exit code: 0 every rollback is lossless, 2 one is not, 1 the gateway could not be asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			list := []face.StreamState{}
			for i := range st.Streams {
				if s := &st.Streams[i]; s.Reverse != nil && matches(c.scope, s.Scope) {
					list = append(list, *s)
				}
			}
			w := cmd.OutOrStdout()
			if err := c.show(w, list, func() { printReverse(w, list) }); err != nil {
				return err
			}
			for i := range list {
				if !list[i].Back.Lossless {
					return &exitError{code: exitNoGo}
				}
			}
			return nil
		},
	})
	cmd.AddCommand(&cobra.Command{
		Use: "verify", Short: "Compare all of a stream with what the servers have, and wait for the outcome",
		Long: `Compare all of a stream with what the servers have, and wait for the outcome.

Exit code: 0 equal, 2 something differs, 1 it could not be compared.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := c.one(cmd.Context())
			if err != nil {
				return err
			}
			return c.compareAll(cmd, &face.DiffRequest{Actor: c.actor(), Scope: scope, Action: "create"})
		},
	})
	return cmd
}

func printReverse(w io.Writer, list []face.StreamState) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no stream is served from here with a way back")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STREAM\tHERE\tSERVERS\tLAG\tSINCE\tROLLBACK NOW\tWHY")
	for i := range list {
		s := &list[i]
		cost := "lossless"
		if !s.Back.Lossless {
			cost = fmt.Sprintf("LOSES %d, twice at most %d", s.Back.Lost, s.Back.Duplicates)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\n", s.Scope, s.EHDB.Last, s.Reverse.Last, s.Reverse.Lag,
			short(s.Reverse.Age), cost, reasons(s.Reverse.Paused, s.Reverse.Error, s.Back.Why))
	}
	_ = t.Flush()
}

// reasons are those that there are, each once.
func reasons(list ...string) string {
	var out []string
	for _, r := range list {
		if r != "" && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return strings.Join(out, "; ")
}

func (c *remote) kedaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keda", Short: "See whether autoscalers watch, and what they need", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	age := time.Minute
	check := &cobra.Command{
		Use: "check", Short: "List who reads the figures of consumers from this gateway",
		Long: `List who reads the figures of consumers from this gateway (/jsz and /api/v1/lag). An autoscaler that
does not ask does not watch: it may be paused, or ask the servers.

Exit code: 0 somebody asked within --within, 2 nobody, 1 the gateway could not be asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if err := c.show(w, st.Scrapes, func() { printScrapes(w, st) }); err != nil {
				return err
			}
			if len(st.Scrapes) == 0 || st.At.Sub(st.Scrapes[0].At) > age {
				return &exitError{code: exitNoGo}
			}
			return nil
		},
	}
	check.Flags().DurationVar(&age, "within", age, "how long ago it may be; twice the pollingInterval")
	endpoint := ""
	manifest := &cobra.Command{
		Use: "manifest", Short: "Print a KEDA trigger for each consumer that was looked at", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			list := triggers(st, c.scope, endpoint)
			if len(list) == 0 {
				return errors.New("no consumer of these streams was looked at yet: is there one, and is the stream " +
					"in shadow?")
			}
			w := cmd.OutOrStdout()
			return c.show(w, list, func() { printTriggers(w, list) })
		},
	}
	manifest.Flags().StringVar(&endpoint, "endpoint", "ehdb-gateway:8222", "the monitoring port as KEDA reaches it")
	cmd.AddCommand(check, manifest)
	return cmd
}

func printScrapes(w io.Writer, st *face.Status) {
	if len(st.Scrapes) == 0 {
		fmt.Fprintln(w, "nobody has asked since the gateway started")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LAST\tTIMES\tPAGE\tFROM\tPROGRAM")
	for _, s := range st.Scrapes {
		fmt.Fprintf(t, "%s ago\t%d\t%s\t%s\t%s\n", ago(st.At, s.At), s.Count, s.Page, s.Addr, dash(s.Agent))
	}
	_ = t.Flush()
}

// trigger is one of KEDA's.
type trigger struct {
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata"`
}

func triggers(st *face.Status, scope, endpoint string) (list []trigger) {
	for i := range st.Streams {
		s := &st.Streams[i]
		if s.Parity == nil || !matches(scope, s.Scope) {
			continue
		}
		for k := range s.Parity.Consumers {
			list = append(list, trigger{"nats-jetstream", map[string]string{
				"natsServerMonitoringEndpoint": endpoint, "account": s.Scope.Account, "stream": s.Scope.Stream,
				"consumer": s.Parity.Consumers[k].Consumer, "lagThreshold": "100",
			}})
		}
	}
	return list
}

func printTriggers(w io.Writer, list []trigger) {
	for i := range list {
		fmt.Fprintf(w, "- type: %s\n  metadata:\n", list[i].Type)
		for _, name := range []string{"natsServerMonitoringEndpoint", "account", "stream", "consumer", "lagThreshold"} {
			fmt.Fprintf(w, "    %s: %q\n", name, list[i].Metadata[name])
		}
	}
	fmt.Fprintln(w, "# While streams move use autoscaling.keda.sh/paused-scale-in, never paused: it removes the HPA.")
}

func (c *remote) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for what keeps the cutover from working, and say what to do",
		Long: `Look for what keeps the cutover from working, and say what to do.

Exit code: 0 nothing found, 2 something found, 1 the gateway could not be asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			list := c.diagnose(st)
			w := cmd.OutOrStdout()
			bad := false
			err = c.show(w, list, func() {
				for _, f := range list {
					mark := "ok  "
					if !f.OK {
						mark = "LOOK"
					}
					fmt.Fprintf(w, "%s  %s\n", mark, f.What)
					if f.Do != "" {
						fmt.Fprintf(w, "      %s\n", f.Do)
					}
				}
			})
			for _, f := range list {
				bad = bad || !f.OK
			}
			if err == nil && bad {
				err = &exitError{code: exitNoGo}
			}
			return err
		},
	}
}

// found is what the doctor says of one thing.
type found struct {
	OK   bool   `json:"ok"`
	What string `json:"what"`
	Do   string `json:"do,omitempty"`
}

func (c *remote) diagnose(st *face.Status) (list []found) {
	say := func(ok bool, what, do string) {
		if ok {
			do = ""
		}
		list = append(list, found{ok, what, do})
	}
	say(true, fmt.Sprintf("the gateway answers: %s, version %s, bus %s", st.Server, st.Version, st.Mode), "")
	_, err := os.ReadFile(c.tokenFile)
	say(err == nil, "the operator's token can be read ("+dash(c.tokenFile)+")",
		"set EHDB_TOKEN_FILE to <store_dir>/ehdb-cutover/"+face.TokenFile+": without it nothing can be changed")
	for _, s := range st.Servers {
		say(s.Reachable, "server "+s.URL+" can be reached", dash(s.LastError))
	}
	for i := range st.Bypass {
		b := &st.Bypass[i]
		say(b.Unknown == "", "who goes around the gateway in account "+b.Account+" is known",
			b.Unknown+": set bus.monitor to the servers' monitoring pages")
		say(len(b.Around) == 0,
			fmt.Sprintf("%d connections go around the gateway in account %s", len(b.Around), b.Account),
			"ehdbctl bypass ls")
	}
	c.diagnoseHooks(st, say)
	say(st.Paused == "", "copying is not paused", cmp.Or(st.Paused, "-")+": ehdbctl resume")
	say(st.Controls.OK, "the comparison detects what is put before it", "ehdbctl parity self-test")
	say(len(st.Streams) > 0, fmt.Sprintf("%d streams are under watch", len(st.Streams)),
		"is the bus in mode shadow, and may the gateway's login list the streams of bus.accounts? ehdbctl plan")
	for i := range st.Streams {
		c.diagnoseStream(st, &st.Streams[i], say)
	}
	return list
}

// diagnoseStream says what is the matter with one stream.
func (*remote) diagnoseStream(st *face.Status, s *face.StreamState, say func(ok bool, what, do string)) {
	why := strings.TrimSpace(s.LastErr + " " + s.Copy.Error)
	say(why == "", fmt.Sprintf("%s is in %s, %d behind", s.Scope, s.Phase, s.Copy.LagMessages), why)
	if s.Copy.Paused != "" && st.Paused == "" {
		say(false, s.Scope.String()+" is not copied", s.Copy.Paused+": ehdbctl resume "+s.Scope.Flag())
	}
	if p := s.Postponed; p != nil {
		say(true, fmt.Sprintf("a flip of %s by %s waits for %s, until %s", s.Scope, p.By, p.Waits,
			p.Until.Format(time.DateTime)), "")
	}
	if s.Leftover != "" {
		say(false, s.Scope.String()+" has a copy of what the servers have", s.Leftover)
	}
	switch o := s.Observed; {
	case o == nil:
	case o.Kept != "":
		say(false, fmt.Sprintf("the flip of %s was to be rolled back by itself", s.Scope), fmt.Sprintf(
			"%s: ehdbctl rollback %s, or ehdbctl flip accept %s", o.Kept, s.Scope.Flag(), s.Scope.Flag()))
	default:
		say(o.Failing == "", fmt.Sprintf("the flip of %s is observed until %s", s.Scope,
			o.Until.Format(time.DateTime)), o.Failing)
	}
	for k := range s.Canaries {
		if c := &s.Canaries[k]; c.Failing != "" {
			say(false, fmt.Sprintf("consumer %s of %s is about to be given back", c.Consumer, s.Scope), c.Failing)
		}
	}
	if s.Authority == "ehdb" && s.ReversibleUntil != "" {
		say(s.Back.Lossless, s.Scope.String()+" can be rolled back without a loss", s.Back.Why)
	}
}

// diagnoseHooks says which hooks there are, and which cannot be run: those that are asked refuse then.
func (*remote) diagnoseHooks(st *face.Status, say func(ok bool, what, do string)) {
	h := &st.Hooks
	switch {
	case h.Dir == "":
		say(true, "no hooks are configured (bus.hooks)", "")
		return
	case len(h.Found) == 0:
		say(false, "there are hooks in "+h.Dir, "there is none: see docs/cutover.md#hooks for their names")
		return
	}
	say(len(h.Problems) == 0, fmt.Sprintf("hooks in %s can be run: %s", h.Dir, strings.Join(h.Found, ", ")),
		strings.Join(h.Problems, "; "))
}
