package jsapi

import "strings"

// APIPrefix starts every API subject.
const APIPrefix = "$JS.API."

// DirectQueue is the queue group of direct gets: a stream and its mirrors share the requests.
const DirectQueue = "$JS.DIRECT"

// APIFilters are the filters of requests that are answered whether or not an asset of that name exists. Subjects that
// belong to one asset (NextSubject and its like) are left out on purpose: a request for an asset that does not exist
// then finds nobody, and its sender learns so at once.
func APIFilters() []string {
	return []string{
		APIPrefix + "INFO",
		APIPrefix + "STREAM.>",
		APIPrefix + "META.>",
		APIPrefix + "SERVER.>",
		APIPrefix + "ACCOUNT.>",
		APIPrefix + "CONSUMER.CREATE.>",
		APIPrefix + "CONSUMER.DURABLE.>",
		APIPrefix + "CONSUMER.NAMES.>",
		APIPrefix + "CONSUMER.LIST.>",
		APIPrefix + "CONSUMER.INFO.>",
		APIPrefix + "CONSUMER.DELETE.>",
		APIPrefix + "CONSUMER.PAUSE.>",
		APIPrefix + "CONSUMER.UNPIN.>",
		APIPrefix + "CONSUMER.LEADER.>",
		APIPrefix + "CONSUMER.PEER.>",
	}
}

// InDomain returns the form of an API subject that clients of a JetStream domain use: $JS.API.X is $JS.<domain>.API.X.
func InDomain(domain, subject string) string {
	return "$JS." + domain + ".API." + strings.TrimPrefix(subject, APIPrefix)
}

// Canonical is the reverse of InDomain: it returns subject in its $JS.API form. Others are returned as they are.
func Canonical(domain, subject string) string {
	if domain == "" {
		return subject
	}
	if rest, ok := strings.CutPrefix(subject, "$JS."+domain+".API."); ok {
		return APIPrefix + rest
	}
	return subject
}

// NextSubject is where pull requests for a consumer go.
func NextSubject(stream, consumer string) string {
	return APIPrefix + "CONSUMER.MSG.NEXT." + stream + "." + consumer
}

// ResetSubject is where resets of a consumer go.
func ResetSubject(stream, consumer string) string {
	return APIPrefix + "CONSUMER.RESET." + stream + "." + consumer
}

// DirectGetSubject is where direct gets of a stream go that name the message in their body.
func DirectGetSubject(stream string) string { return APIPrefix + "DIRECT.GET." + stream }

// DirectLastFilter matches direct gets of a stream that name the message's subject in theirs.
func DirectLastFilter(stream string) string { return APIPrefix + "DIRECT.GET." + stream + ".>" }

// AckFilters are the filters of a consumer's acks, in both forms clients may be given: with and without domain and
// account hash. domain is "_" where there is none.
func AckFilters(stream, consumer string) [2]string {
	return [2]string{
		AckPrefix + stream + "." + consumer + ".*.*.*.*.*",
		AckPrefix + "*.*." + stream + "." + consumer + ".*.*.*.*.>",
	}
}

// FlowFilters are the filters of a consumer's flow control answers, in both forms.
func FlowFilters(stream, consumer string) [2]string {
	return [2]string{
		FlowControlPrefix + stream + "." + consumer + ".*",
		FlowControlPrefix + "*.*." + stream + "." + consumer + ".*",
	}
}

// ValidAssetName reports whether name can name a stream or consumer.
func ValidAssetName(name string) bool {
	return name != "" && !strings.ContainsAny(name, " \t\r\n\f.*>\\/")
}
