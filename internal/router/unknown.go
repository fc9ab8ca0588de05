package router

// question is what a route's recover says.
type question struct {
	method string
	// path is nil when it cannot be used.
	path *address
	// name is that of the key, such as routes.refund.recover, which stands at at.
	name string
	at   place
}

// unknownOutcome is what a route's on_unknown_outcome says.
type unknownOutcome struct {
	hold bool
	name string
	at   place
}

// question reads recover.
func (r *reader) question(f field, env *environment) *question {
	q := &question{method: "GET", name: f.path, at: r.at(f.key)}
	o, ok := r.object(f.path, f.value, keys{now: []string{"method", "path"}, where: routeKeyPlaces()})
	if !ok {
		return q
	}
	if method := optional(o.fields, "method", func(f field) *string { return r.word(f, "GET", "HEAD") }); method != nil {
		q.method = *method
	}
	if path, ok := o.fields["path"]; ok {
		q.path = r.path(path, env)
	} else if o.missing("path") {
		r.problems.addf(q.at, "%s: path is missing", f.path)
	}
	return q
}

func (r *reader) unknownOutcome(f field) *unknownOutcome {
	word := r.word(f, "fail", "hold")
	if word == nil {
		return nil
	}
	return &unknownOutcome{hold: *word == "hold", name: f.path, at: r.at(f.key)}
}

// recovery prepares a route's question about an earlier request: its path is put
// after the URL of the upstream, or after the origin of the route's own url.
func (b *builder) recovery(route *Route, q *question, to destination, headers []headerTemplate) *Recover {
	if q == nil || q.path == nil || to.base == nil {
		return nil
	}
	base := *to.base
	if to.upstream == nil {
		base = address{head: b.env.origin(base.head)}
	}
	joined, err := joinAddress(base, *q.path, b.env)
	if err == nil {
		err = checkBase(withPlaceholders(joined.head))
	}
	if err != nil {
		b.addf(q.at, "%s: the path does not fit the URL of %s: %s", q.name, quoteWord(route.Name), err)
		return nil
	}
	asked := newBlueprint(route.Name, q.method, joined, nil, headers)
	if len(asked.uses()) == 0 {
		b.warnf(q.at, "%s: names nothing of the call: write {call.idempotency_key} into the path", q.name)
	}
	return &Recover{Method: q.method, request: asked}
}

// warnOfNeverAsked tells of what an idempotent route has for unknown outcomes, for
// it never has one. What defaults bring is meant for other routes.
func (b *builder) warnOfNeverAsked(d *draft, route *Route) {
	if !route.Idempotent {
		return
	}
	const never = "%s: has no effect: the route is idempotent, so that its request is sent again"
	if q := d.settings.question; q != nil {
		b.warnf(q.at, never, q.name)
	}
	if u := d.settings.onUnknown; u != nil {
		b.warnf(u.at, never, u.name)
	}
}
