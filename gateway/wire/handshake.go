package wire

// Info is the document of an INFO line, with the fields that clients see.
type Info struct {
	ServerID      string   `json:"server_id"`
	ServerName    string   `json:"server_name"`
	Version       string   `json:"version"`
	Proto         int      `json:"proto"`
	GitCommit     string   `json:"git_commit,omitempty"`
	Go            string   `json:"go"`
	Host          string   `json:"host"`
	Port          int      `json:"port"`
	Headers       bool     `json:"headers"`
	AuthRequired  bool     `json:"auth_required,omitempty"`
	TLSRequired   bool     `json:"tls_required,omitempty"`
	TLSVerify     bool     `json:"tls_verify,omitempty"`
	TLSAvailable  bool     `json:"tls_available,omitempty"`
	MaxPayload    int32    `json:"max_payload"`
	JetStream     bool     `json:"jetstream,omitempty"`
	ClientID      uint64   `json:"client_id,omitempty"`
	ClientIP      string   `json:"client_ip,omitempty"`
	Nonce         string   `json:"nonce,omitempty"`
	Cluster       string   `json:"cluster,omitempty"`
	Domain        string   `json:"domain,omitempty"`
	ConnectURLs   []string `json:"connect_urls,omitempty"`
	WSConnectURLs []string `json:"ws_connect_urls,omitempty"`
	LameDuck      bool     `json:"ldm,omitempty"`
	ConnectInfo   bool     `json:"connect_info,omitempty"`
	RemoteAccount string   `json:"remote_account,omitempty"`
	IsSystem      bool     `json:"acc_is_sys,omitempty"`
	APILevel      int      `json:"api_lvl,omitempty"`
	XKey          string   `json:"xkey,omitempty"`
}

// The protocol versions a client may ask for.
const (
	ProtoZero = 0 // no INFO after the first
	ProtoInfo = 1 // INFO at any time
)

// Connect is the document of a CONNECT line.
type Connect struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	Echo         bool   `json:"echo"`
	TLSRequired  bool   `json:"tls_required"`
	Nkey         string `json:"nkey,omitempty"`
	JWT          string `json:"jwt,omitempty"`
	Sig          string `json:"sig,omitempty"`
	ProxySig     string `json:"proxy_sig,omitempty"`
	Token        string `json:"auth_token,omitempty"`
	User         string `json:"user,omitempty"`
	Pass         string `json:"pass,omitempty"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"`
	Account      string `json:"account,omitempty"`
	NewAccount   bool   `json:"new_account,omitempty"`
	Headers      bool   `json:"headers,omitempty"`
	NoResponders bool   `json:"no_responders,omitempty"`
}

// DefaultConnect returns what holds for a client that has not sent a CONNECT, and for the fields one leaves out.
func DefaultConnect() Connect { return Connect{Verbose: true, Pedantic: true, Echo: true} }
