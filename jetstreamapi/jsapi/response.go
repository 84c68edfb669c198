package jsapi

import "github.com/nats-io/nats-server/v2/server"

// The shapes of requests and answers are nats-server's own: they are what every client library was written against.
type (
	// Response is what every answer starts with: its type, and the error if there is one.
	Response = server.ApiResponse
	// Error is an API error.
	Error = server.ApiError

	// AccountInfoResponse answers INFO.
	AccountInfoResponse = server.JSApiAccountInfoResponse

	// StreamCreateRequest asks for STREAM.CREATE and STREAM.UPDATE.
	StreamCreateRequest = server.StreamConfigRequest
	// StreamCreateResponse answers STREAM.CREATE.
	StreamCreateResponse = server.JSApiStreamCreateResponse
	// StreamUpdateResponse answers STREAM.UPDATE.
	StreamUpdateResponse = server.JSApiStreamUpdateResponse
	// StreamDeleteResponse answers STREAM.DELETE.
	StreamDeleteResponse = server.JSApiStreamDeleteResponse
	// StreamInfoRequest asks for STREAM.INFO.
	StreamInfoRequest = server.JSApiStreamInfoRequest
	// StreamInfoResponse answers STREAM.INFO.
	StreamInfoResponse = server.JSApiStreamInfoResponse
	// StreamNamesRequest asks for STREAM.NAMES.
	StreamNamesRequest = server.JSApiStreamNamesRequest
	// StreamNamesResponse answers STREAM.NAMES.
	StreamNamesResponse = server.JSApiStreamNamesResponse
	// StreamListRequest asks for STREAM.LIST.
	StreamListRequest = server.JSApiStreamListRequest
	// StreamListResponse answers STREAM.LIST.
	StreamListResponse = server.JSApiStreamListResponse
	// StreamPurgeRequest asks for STREAM.PURGE.
	StreamPurgeRequest = server.JSApiStreamPurgeRequest
	// StreamPurgeResponse answers STREAM.PURGE.
	StreamPurgeResponse = server.JSApiStreamPurgeResponse
	// MsgGetRequest asks for STREAM.MSG.GET and DIRECT.GET.
	MsgGetRequest = server.JSApiMsgGetRequest
	// MsgGetResponse answers STREAM.MSG.GET.
	MsgGetResponse = server.JSApiMsgGetResponse
	// MsgDeleteRequest asks for STREAM.MSG.DELETE.
	MsgDeleteRequest = server.JSApiMsgDeleteRequest
	// MsgDeleteResponse answers STREAM.MSG.DELETE.
	MsgDeleteResponse = server.JSApiMsgDeleteResponse

	// ConsumerCreateRequest asks for CONSUMER.CREATE.
	ConsumerCreateRequest = server.CreateConsumerRequest
	// ConsumerCreateResponse answers CONSUMER.CREATE.
	ConsumerCreateResponse = server.JSApiConsumerCreateResponse
	// ConsumerDeleteResponse answers CONSUMER.DELETE.
	ConsumerDeleteResponse = server.JSApiConsumerDeleteResponse
	// ConsumerInfoResponse answers CONSUMER.INFO.
	ConsumerInfoResponse = server.JSApiConsumerInfoResponse
	// ConsumersRequest asks for CONSUMER.NAMES and CONSUMER.LIST.
	ConsumersRequest = server.JSApiConsumersRequest
	// ConsumerNamesResponse answers CONSUMER.NAMES.
	ConsumerNamesResponse = server.JSApiConsumerNamesResponse
	// ConsumerListResponse answers CONSUMER.LIST.
	ConsumerListResponse = server.JSApiConsumerListResponse
	// ConsumerPauseRequest asks for CONSUMER.PAUSE.
	ConsumerPauseRequest = server.JSApiConsumerPauseRequest
	// ConsumerPauseResponse answers CONSUMER.PAUSE.
	ConsumerPauseResponse = server.JSApiConsumerPauseResponse
	// ConsumerUnpinRequest asks for CONSUMER.UNPIN.
	ConsumerUnpinRequest = server.JSApiConsumerUnpinRequest
	// ConsumerUnpinResponse answers CONSUMER.UNPIN.
	ConsumerUnpinResponse = server.JSApiConsumerUnpinResponse
	// ConsumerResetRequest asks for CONSUMER.RESET.
	ConsumerResetRequest = server.JSApiConsumerResetRequest
	// ConsumerResetResponse answers CONSUMER.RESET.
	ConsumerResetResponse = server.JSApiConsumerResetResponse
)

// Page sizes.
const (
	NamesLimit    = server.JSApiNamesLimit
	ListLimit     = server.JSApiListLimit
	SubjectsLimit = server.JSMaxSubjectDetails
)

// APILevel is the JetStream API level that is served.
const APILevel = server.JSApiLevel
