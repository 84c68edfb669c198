package pilot

import "context"

// MeasureOverhead measures what the gateway adds, now.
func (p *Pilot) MeasureOverhead(ctx context.Context) error { return p.measureOverhead(ctx) }
