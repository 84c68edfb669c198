package metrics

import "github.com/prometheus/client_golang/prometheus"

// talkers sends who sends and receives most: as many series as there are talkers, which whoever counts them bounds.
func talkers(ch chan<- prometheus.Metric, t *Talkers) {
	for _, f := range []struct {
		name, help, label string // an empty label: accounts as a whole
		list              []Talker
	}{
		{"ehdb_top_account_msgs_total", "Messages from and to clients of the accounts with most.", "", t.AccountMsgs},
		{"ehdb_top_account_bytes_total", "Bytes from and to clients of the accounts with most.", "", t.AccountBytes},
		{"ehdb_top_user_msgs_total", "Messages from and to the users with most.", "user", t.UserMsgs},
		{"ehdb_top_user_bytes_total", "Bytes from and to the users with most.", "user", t.UserBytes},
		{
			"ehdb_top_subject_msgs_total", "Messages published below the subjects with most: an estimate.",
			"subject", t.SubjectMsgs,
		},
		{
			"ehdb_top_subject_bytes_total", "Bytes published below the subjects with most: an estimate.",
			"subject", t.SubjectBytes,
		},
	} {
		labels := []string{"account"}
		if f.label != "" {
			labels = append(labels, f.label)
		}
		d := desc(f.name, f.help, labels...)
		for _, one := range f.list {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(one.Total),
				[]string{one.Account, one.Name}[:len(labels)]...)
		}
	}
}
