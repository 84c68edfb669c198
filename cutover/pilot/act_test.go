package pilot

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// What has changed nothing is a refusal, and says so once; anything else is a failure as it is.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string // empty: it is no refusal
	}{
		{fmt.Errorf("%w: S is in phase shadow", flip.ErrRefused), "refused: S is in phase shadow"},
		{fmt.Errorf("%w: held for 1s", flip.ErrBudget), "refused: the fence's budget ran out: held for 1s"},
		{fmt.Errorf("under the fence: %w", flip.ErrEnded), "refused: under the fence: ended without effect"},
		{fmt.Errorf("%w: not on a friday", face.ErrRefused), "refused: not on a friday"},
		{io.ErrUnexpectedEOF, ""},
	} {
		got := refused(c.err)
		switch {
		case c.want == "" && errors.Is(got, face.ErrRefused):
			t.Errorf("%v became %v", c.err, got)
		case c.want != "" && (got.Error() != c.want || !errors.Is(got, face.ErrRefused) || !errors.Is(got, c.err)):
			t.Errorf("%v became %q", c.err, got)
		}
	}
	if refused(nil) != nil {
		t.Error("no error became one")
	}
}
