package cutover

import "github.com/nats-io/nats-server/v2/server"

// Filters are the subjects that a consumer selects; none: all of its stream.
func Filters(c *server.ConsumerConfig) []string {
	switch {
	case len(c.FilterSubjects) > 0:
		return c.FilterSubjects
	case c.FilterSubject != "" && c.FilterSubject != ">":
		return []string{c.FilterSubject}
	}
	return nil
}
