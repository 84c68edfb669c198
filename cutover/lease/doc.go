// Package lease keeps two gateways from having the say about one stream. What they know of each other is on the
// servers:
//
//	the lease   the key "gateway" of the bucket EHDB_CUTOVER, which one process renews: it ends with its process
//	the claim   the key "gateway" of the bucket EHDB_AUTHORITY, which has no end: the streams that a gateway has the
//	            say about, whose messages are in its store_dir and nowhere else
//
// A lease elects: whoever has it may move streams. It does not fence: its owner may be gone for longer than it lasts,
// and still have the streams. So the claim is written before a flip is, and removed after a rollback is, and a gateway
// does not start, or ends, where the claim is another's, or says of its own streams more than its store_dir has.
//
// A process that did not run for a while, or on a machine that was suspended, lets nothing pass before it has looked.
package lease
