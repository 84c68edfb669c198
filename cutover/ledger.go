package cutover

// Acked is a publish that the authority of a stream acknowledged.
type Acked struct {
	Seq     uint64
	Subject string // as published
	MsgID   string // Nats-Msg-Id, if there was one
	Hash    uint64 // Hash of what was published; 0: not known (a message of an atomic batch)
	When    int64  // when the acknowledgement passed, Unix nanoseconds
}

// Ledger knows what was acknowledged, as it passed: the third witness beside the two sides' stores. Acknowledgements of
// duplicates are not in it, since they name a sequence that another publish got.
type Ledger interface {
	// Acked gives the publishes with first <= Seq <= last, ascending, until fn returns false. fn must not call back.
	Acked(scope Scope, first, last uint64, fn func(Acked) bool)
	// Span returns the highest sequence that is noted, and the one from which on every acknowledgement was noted; ok is
	// false when nothing is known of the stream.
	Span(scope Scope) (first, last uint64, ok bool)
	// Settled says that everything up to a sequence was compared and is equal, so that it may be forgotten.
	Settled(scope Scope, through uint64)
}

// Deliveries knows what consumers were offered, whoever served them.
type Deliveries interface {
	// Offered gives the sequences that a consumer was offered at least once, as ascending ranges, until fn returns
	// false. It returns the stream's sequence from which on all were noted; ok is false when nothing is known of the
	// consumer. fn must not call back.
	Offered(scope Scope, consumer string, fn func(first, last uint64) bool) (since uint64, ok bool)
}
