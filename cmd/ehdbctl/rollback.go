package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

func (c *remote) rollbackCommand() *cobra.Command {
	q, all := face.RollbackRequest{}, false
	cmd := &cobra.Command{
		Use: "rollback", Short: "Make the servers the authority of a stream again",
		Long: `Make the servers the authority of a stream again. It waits until they have everything, so nothing
is lost.

With --emergency it does not wait. What that costs at most is shown first, and is not exceeded: should it have
become more meanwhile, nothing is done. On a terminal it is asked for once more.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			if !all && c.scope == "" {
				return errors.New("give --scope, or --all")
			}
			list, err := c.servedHere(st)
			for _, s := range list {
				if c.dry {
					err = errors.Join(err, c.dryRun(cmd, face.PlanRequest{
						Scope: s.Scope, To: "nats", Emergency: q.Emergency,
					}))
					continue
				}
				err = errors.Join(err, c.rollback(cmd, s, q))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "every stream, one after the other")
	f.BoolVar(&q.Emergency, "emergency", false, "do not wait for what the servers lack")
	f.DurationVar(&q.MaxFence, "max-fence", 0, "how long clients may be held; 0: 1.5s")
	return cmd
}

func (c *remote) rollback(cmd *cobra.Command, s *face.StreamState, q face.RollbackRequest) error {
	q.Actor, q.Scope = c.actor(), s.Scope
	if q.Emergency {
		q.MaxLoss = s.Back.Lost
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: at most %d messages are lost and %d delivered twice\n", s.Scope,
			s.Back.Lost, s.Back.Duplicates)
		if err := confirm(cmd, s.Scope); err != nil {
			return err
		}
	}
	var m face.Move
	if err := c.post(cmd.Context(), "/rollback", q, &m); err != nil {
		return fmt.Errorf("%s: %w", s.Scope, err)
	}
	return c.moved(cmd, &m)
}

// servedHere are the streams that --scope names, and that the gateway has the say about.
func (c *remote) servedHere(st *face.Status) (list []*face.StreamState, err error) {
	name := strings.TrimPrefix(c.scope, "stream=")
	if name != "" && !strings.Contains(name, "*") { // not those of that name of all accounts
		scope, err := underWatch(st, name)
		if err != nil {
			return nil, err
		}
		name = scope.String()
	}
	for i := range st.Streams {
		if s := &st.Streams[i]; s.Authority == "ehdb" && matches(name, s.Scope) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		err = errors.New("EHDB is the authority of no such stream: there is nothing to roll back")
	}
	return list, err
}
