package subjects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrShardRule is wrapped by the errors about rules of a [ShardMap].
var ErrShardRule = errors.New("bad rule in the subject map")

// ShardRule places the subjects of a filter.
type ShardRule struct {
	// Filter selects the subjects.
	Filter string
	// Shards is where they go: to the one there is, or to one of several by hash of Tokens.
	Shards []int
	// Tokens are the positions, from 1, of the tokens that are hashed, in this order ([ShardHash] of one, [ShardHash]
	// chained for more). Needed where there are several Shards.
	Tokens []int
}

// ShardMap places subjects on shards by the first rule whose filter selects them, or else by the stream they belong to.
// It is a pure function of its rules: the owner persists where a stream was placed, as a changed map moves nothing by
// itself. A ShardMap is immutable and safe for concurrent use.
type ShardMap struct {
	shards int
	rules  []shardRule
}

type shardRule struct {
	ShardRule
	filter *Filter
}

// NewShardMap checks rules for a number of shards (at least 1). The error wraps ErrShardRule and names the first rule
// that is wrong, counted from 1, and why.
func NewShardMap(shards int, rules []ShardRule) (*ShardMap, error) {
	if shards < 1 {
		return nil, fmt.Errorf("%w: there must be at least 1 shard, not %d", ErrShardRule, shards)
	}
	m := &ShardMap{shards: shards}
	for i, r := range rules {
		if err := m.add(r); err != nil {
			return nil, fmt.Errorf("%w %d (%q): %w", ErrShardRule, i+1, r.Filter, err)
		}
	}
	return m, nil
}

// add checks one rule and appends it.
func (m *ShardMap) add(r ShardRule) error {
	filter, err := Compile(r.Filter)
	if err != nil {
		return err
	}
	if err := m.checkShards(r); err != nil {
		return err
	}
	if err := checkTokens(r); err != nil {
		return err
	}
	for i, earlier := range m.rules {
		if SubsetOf(r.Filter, earlier.Filter) {
			return fmt.Errorf("it can never apply: rule %d (%q) selects all its subjects first", i+1, earlier.Filter)
		}
	}
	r.Shards, r.Tokens = slices.Clone(r.Shards), slices.Clone(r.Tokens)
	m.rules = append(m.rules, shardRule{ShardRule: r, filter: filter})
	return nil
}

func (m *ShardMap) checkShards(r ShardRule) error {
	if len(r.Shards) == 0 {
		return errors.New("it names no shard")
	}
	for i, shard := range r.Shards {
		if shard < 0 || shard >= m.shards {
			return fmt.Errorf("there is no shard %d: shards are numbered from 0 to %d", shard, m.shards-1)
		}
		if slices.Contains(r.Shards[:i], shard) {
			return fmt.Errorf("it names shard %d twice", shard)
		}
	}
	return nil
}

func checkTokens(r ShardRule) error {
	if len(r.Shards) > 1 && len(r.Tokens) == 0 {
		return errors.New("it names several shards and no token to choose by")
	}
	n := NumTokens(r.Filter)
	for i, p := range r.Tokens {
		if p < 1 || p > n {
			return fmt.Errorf("token %d is not one that every subject of the filter has (1 to %d)", p, n)
		}
		if slices.Contains(r.Tokens[:i], p) {
			return fmt.Errorf("it names token %d twice", p)
		}
	}
	return nil
}

// Shards returns the number of shards.
func (m *ShardMap) Shards() int { return m.shards }

// Rules returns a copy of the rules, in order.
func (m *ShardMap) Rules() []ShardRule {
	rules := make([]ShardRule, 0, len(m.rules))
	for _, r := range m.rules {
		rules = append(rules, ShardRule{
			Filter: r.Filter, Shards: slices.Clone(r.Shards), Tokens: slices.Clone(r.Tokens),
		})
	}
	return rules
}

// Shard returns the shard for a record of account's stream under subject. It allocates nothing.
func (m *ShardMap) Shard(account, stream string, subject []byte) int {
	if shard, ok := m.ByRule(subject); ok {
		return shard
	}
	return m.Default(account, stream)
}

// ByRule returns the shard of the first rule that selects subject; ok is false if none does.
func (m *ShardMap) ByRule(subject []byte) (shard int, ok bool) {
	for i := range m.rules {
		if r := &m.rules[i]; r.filter.Match(subject) {
			return r.choose(view(subject)), true
		}
	}
	return 0, false
}

// Default returns the shard for what no rule selects: by hash of "account/stream".
func (m *ShardMap) Default(account, stream string) int {
	if m.shards == 1 {
		return 0
	}
	h := newShardHasher()
	h.text(account)
	h.text("/")
	h.text(stream)
	return int(h.sum() % uint64(m.shards))
}

// choose returns the rule's shard for a subject that it selects, or for a filter whose hashed tokens are literal.
func (r *shardRule) choose(subject string) int {
	if len(r.Shards) == 1 {
		return r.Shards[0]
	}
	if len(r.Tokens) == 1 {
		return r.Shards[ShardHash(Token(subject, r.Tokens[0]-1))%uint64(len(r.Shards))]
	}
	h := newShardHasher()
	for _, p := range r.Tokens {
		h.token(Token(subject, p-1))
	}
	return r.Shards[h.sum()%uint64(len(r.Shards))]
}

// Reach returns, ascending, every shard that a record of account's stream can go to, if the stream takes the subjects
// of filters: one means that the stream lives there, several that it is spread. It may name a shard too many where
// several rules together hide a later one, never one too few.
func (m *ShardMap) Reach(account, stream string, filters []string) []int {
	seen := make([]bool, m.shards)
	for _, f := range filters {
		if !m.reach(seen, f) {
			seen[m.Default(account, stream)] = true
		}
	}
	var shards []int
	for shard, yes := range seen {
		if yes {
			shards = append(shards, shard)
		}
	}
	return shards
}

// reach marks the shards that the rules give to subjects of filter. done: there is no subject left without a rule.
func (m *ShardMap) reach(seen []bool, filter string) (done bool) {
	for i := range m.rules {
		r := &m.rules[i]
		if !Overlap(filter, r.Filter) {
			continue
		}
		if known, ok := r.narrow(filter); ok {
			seen[r.choose(known)] = true
		} else {
			for _, shard := range r.Shards {
				seen[shard] = true
			}
		}
		if SubsetOf(filter, r.Filter) {
			return true
		}
	}
	return false
}

// narrow returns a text whose hashed tokens are those of every subject that both filter and the rule select; ok is
// false if those tokens vary. The two filters overlap.
func (r *shardRule) narrow(filter string) (text string, ok bool) {
	var tokens []string
	n := NumTokens(r.Filter)
	for i := range n {
		a, b := Token(filter, i), Token(r.Filter, i)
		literal := a
		if HasWildcard(a) || a == "" {
			literal = b
		}
		if (HasWildcard(literal) || literal == "") && slices.Contains(r.Tokens, i+1) {
			return "", false
		}
		tokens = append(tokens, literal)
	}
	return strings.Join(tokens, separator), true
}
