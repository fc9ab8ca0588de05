package agentsim

import (
	"strconv"
	"time"
)

// startTurn begins a turn, or queues it behind the active one.
func (ss *session) startTurn(plan turnPlan) *turn {
	t := &turn{id: ss.sim.newID("turn_"), plan: plan, status: statusQueued, created: time.Now(), done: make(chan struct{})}
	if ss.status == statusFailed || ss.deleted {
		t.status = statusFailed
		t.errText = "The session failed."
		close(t.done)
		return t
	}
	ss.forgetOldTurns()
	ss.turns = append(ss.turns, t)
	if ss.active != nil {
		ss.queue = append(ss.queue, t)
		return t
	}
	ss.begin(t)
	return t
}

func (ss *session) begin(t *turn) {
	ss.active = t
	ss.sendTurn("agent.session.turn.created", t, false)
	t.started = time.Now()
	t.status = statusInProgress
	ss.become(statusInProgress)
	ss.sendTurn("agent.session.turn.in_progress", t, false)
	ss.addUserMessage(t)
	ss.advance(t)
}

// forgetOldTurns keeps memory flat in long runs.
func (ss *session) forgetOldTurns() {
	keep := ss.sim.opts.KeepTurns
	if keep <= 0 {
		return
	}
	for len(ss.turns) > keep && ss.turns[0] != ss.active && !ss.turns[0].completed.IsZero() {
		old := ss.turns[0]
		ss.turns = ss.turns[1:]
		for _, c := range old.calls {
			delete(ss.calls, c.id)
		}
		for _, key := range old.keys {
			delete(ss.keys, key)
		}
	}
}

// advance plays steps until one holds the turn or the turn is over.
func (ss *session) advance(t *turn) {
	for t.step < len(t.plan.steps) {
		if !ss.playStep(t) {
			return
		}
		t.step++
		t.action = 0
	}
	ss.finish(t)
}

// playStep plays what is left of the present step. It is false when something must happen before the next one.
func (ss *session) playStep(t *turn) bool {
	step := t.plan.steps[t.step]
	for t.action < len(step) {
		a := step[t.action]
		t.action++
		switch a.Kind {
		case ActionWait:
			ss.after(a.Wait, func() {
				if ss.active == t && ss.playStep(t) {
					t.step++
					t.action = 0
					ss.advance(t)
				}
			})
			return false
		case ActionText:
			ss.sendDeltas(t, a.N)
		case ActionFault:
			ss.mishap(a.Fault)
		case ActionCall:
			ss.announceCall(t, a)
		default:
			ss.announceOther(t, a)
		}
	}
	return ss.registerStep(t)
}

// announceCall adds the function_call item; the call is not pending yet.
func (ss *session) announceCall(t *turn, a Action) {
	c := &call{
		turn: t, id: a.CallID, name: a.Name, arguments: a.Arguments, async: a.Async || ss.toolIsAsync(a.Name),
		itemID: ss.sim.newID("fc_"), output: t.outputs,
	}
	if c.id == "" {
		c.id = ss.sim.newID("call_")
	}
	t.outputs++
	t.calls = append(t.calls, c)
	c.entry = &entry{turn: t, call: c, blocking: !c.async, json: c.appendAction(nil)}
	t.announced = append(t.announced, c.entry)
	ss.calls[c.id] = c
	c.place = len(t.items)
	ss.addItem(t, row{id: c.itemID, json: c.appendItem(nil, statusInProgress)}, c.output)
}

func (ss *session) announceOther(t *turn, a Action) {
	e := &entry{turn: t, blocking: true}
	id := ss.sim.newID("req_")
	switch a.Kind {
	case ActionConnection:
		e.json = appendConnection(nil, ss.sim.newID("env_"))
	case ActionUnknown:
		e.json = appendUnknownAction(nil, t.id, id)
	default:
		e.json = appendApproval(nil, t.id, id)
	}
	t.announced = append(t.announced, e)
}

// registerStep makes the announced actions pending, at once or after the registration race.
func (ss *session) registerStep(t *turn) bool {
	if len(t.announced) == 0 {
		return true
	}
	if d := ss.sim.opts.RegisterDelay; d > 0 {
		ss.after(d, func() {
			if ss.active == t && ss.register(t) {
				t.step++
				t.action = 0
				ss.advance(t)
			}
		})
		return false
	}
	return ss.register(t)
}

// register lists the announced actions; it is true when none of them holds the turn.
func (ss *session) register(t *turn) bool {
	for _, e := range t.announced {
		if e.call != nil {
			e.call.registered = true
		}
		if e.blocking {
			t.open++
		}
		if e.blocking || !ss.sim.opts.AsyncUnlisted {
			ss.required = append(ss.required, e)
		}
	}
	t.announced = nil
	if t.open > 0 && !ss.sim.opts.QuietStatus {
		t.status = statusWaiting
		ss.become(statusRequiresAction)
		return false
	}
	ss.announceStatus()
	return t.open == 0
}

// answer takes a result that was found right. The caller sent nothing yet.
func (ss *session) answer(c *call, r *Result) {
	c.result = r
	c.over = true
	ss.answered++
	ss.sim.results.Add(1)
	stale := ss.staleSnapshot()
	ss.unlist(c.entry)
	id := ss.sim.newID("fco_")
	ss.addItem(c.turn, row{id: id, json: appendOutputItem(nil, id, c, r)}, -1)
	ss.finishCall(c)
	if stale != nil {
		ss.sendSnapshot("agent.session.requires_action", stale)
	}
	ss.proceed(c.turn, c.entry.blocking)
}

// staleSnapshot is the snapshot that still lists a call whose result is being taken, for Options.Repeat.
func (ss *session) staleSnapshot() []byte {
	if !ss.sim.opts.Repeat || ss.sim.opts.Lag <= 0 || ss.status != statusRequiresAction || len(ss.streams) == 0 {
		return nil
	}
	return ss.snapshot(nil)
}

// unlist takes the entry out of required_actions.
func (ss *session) unlist(e *entry) {
	for i, other := range ss.required {
		if other == e {
			ss.required = append(ss.required[:i], ss.required[i+1:]...)
			return
		}
	}
}

// proceed goes on after one required action of t was answered.
func (ss *session) proceed(t *turn, blocking bool) {
	if blocking {
		t.open--
	}
	switch {
	case !blocking, t != ss.active:
		ss.remember()
	case t.open > 0:
		ss.remember()
		if ss.sim.opts.Repeat {
			ss.announceStatus()
		}
	default:
		t.status = statusInProgress
		ss.become(statusInProgress)
		t.step++
		t.action = 0
		ss.advance(t)
	}
}

// finish ends a turn well: the agent's last words, turn.completed, idle.
func (ss *session) finish(t *turn) {
	ss.addLastWords(t)
	ss.endTurn(t, statusCompleted, "")
	ss.sendTurn("agent.session.turn.completed", t, true)
	ss.rest()
}

// endTurn settles the turn's own state. Async calls stay open beyond it.
func (ss *session) endTurn(t *turn, status, errText string) {
	t.status = status
	t.errText = errText
	t.completed = time.Now()
	t.announced = nil
	t.open = 0
	ss.active = nil
	close(t.done)
}

// rest makes the session idle and starts the next turn in the queue.
func (ss *session) rest() {
	ss.become(statusIdle)
	ss.endCreations()
	if len(ss.queue) > 0 {
		next := ss.queue[0]
		ss.queue = ss.queue[1:]
		ss.begin(next)
	}
}

// abandon ends the active turn in another way than well; nothing of it is wanted any more.
func (ss *session) abandon(status, errText string) bool {
	t := ss.active
	if t == nil {
		return false
	}
	for _, c := range t.calls {
		c.over = true
	}
	kept := ss.required[:0]
	for _, e := range ss.required {
		if e.turn != t {
			kept = append(kept, e)
		}
	}
	ss.required = kept
	ss.endTurn(t, status, errText)
	return true
}

func (ss *session) cancel() {
	t := ss.active
	if ss.abandon(statusCancelled, "") {
		ss.sendTurn("agent.session.turn.cancelled", t, true)
		ss.rest()
	}
}

func (ss *session) failTurn() {
	t := ss.active
	if ss.abandon(statusFailed, "The turn failed.") {
		ss.sendError("internal_error", "The turn failed.")
		ss.sendTurn("agent.session.turn.failed", t, true)
		ss.rest()
	}
}

func (ss *session) fail(why string) {
	t := ss.active
	if ss.abandon(statusFailed, why) {
		ss.sendTurn("agent.session.turn.failed", t, true)
	}
	for _, e := range ss.required {
		if e.call != nil {
			e.call.over = true
		}
	}
	ss.required = nil
	for _, queued := range ss.queue {
		queued.status = statusFailed
		queued.completed = time.Now()
		close(queued.done)
	}
	ss.queue = nil
	ss.errText = why
	ss.sendError("internal_error", why)
	ss.become(statusFailed)
	ss.endCreations()
}

// endCreations ends the streams that answer a session's creation: the first turn is over.
func (ss *session) endCreations() {
	for _, st := range ss.streams {
		if st.untilIdle {
			st.end(endClean)
		}
	}
}

// settleOthers answers what is pending and no function call.
func (ss *session) settleOthers() {
	for _, e := range append([]*entry(nil), ss.required...) {
		if e.call == nil {
			ss.unlist(e)
			ss.proceed(e.turn, e.blocking)
		}
	}
}

// settleRequest answers one approval; it is false when none has that id.
func (ss *session) settleRequest(requestID string) bool {
	for _, e := range ss.required {
		if e.call == nil && e.requestID() == requestID {
			ss.unlist(e)
			ss.proceed(e.turn, e.blocking)
			return true
		}
	}
	return false
}

// addItem stores an item and sends its item.added; output is its index among the outputs, -1 for other items.
func (ss *session) addItem(t *turn, it row, output int) {
	t.items = append(t.items, it)
	ss.sendItem("agent.session.turn.item.added", t, it.json, output)
}

// finishCall marks the call's item completed, in the history and on the stream.
func (ss *session) finishCall(c *call) {
	status := statusCompleted
	if !c.result.Success {
		status = statusFailed
	}
	done := c.appendItem(nil, status)
	c.turn.items[c.place].json = done
	ss.sendItem("agent.session.turn.item.done", c.turn, done, c.output)
}

func (ss *session) addUserMessage(t *turn) {
	id := ss.sim.newID("msg_")
	ss.addItem(t, row{id: id, json: appendUserMessage(nil, id, t.id, t.plan.message)}, -1)
}

// addLastWords says what the plan says, or what the functions answered.
func (ss *session) addLastWords(t *turn) {
	text := t.plan.say
	if text == "" {
		text = t.summary()
	}
	id := ss.sim.newID("msg_")
	output := t.outputs
	t.outputs++
	ss.sendItem("agent.session.turn.item.added", t, appendAssistantMessage(nil, id, t.id, statusInProgress, ""), output)
	ss.sendText(t, id, output, text)
	done := appendAssistantMessage(nil, id, t.id, statusCompleted, text)
	t.items = append(t.items, row{id: id, json: done})
	ss.sendItem("agent.session.turn.item.done", t, done, output)
}

// summary tells the user what came of the calls, the first twenty of them.
func (t *turn) summary() string {
	b := make([]byte, 0, 128)
	for i, c := range t.calls {
		if i == 20 {
			return string(append(b, "… and "+strconv.Itoa(len(t.calls)-i)+" more"...))
		}
		if i > 0 {
			b = append(b, '\n')
		}
		b = append(append(b, c.name...), ": "...)
		b = append(b, c.outcome()...)
	}
	if len(b) == 0 {
		return "Done."
	}
	return string(b)
}

func (c *call) outcome() string {
	switch {
	case c.result == nil:
		return "(no result)"
	case !c.result.Success:
		return "failed: " + c.result.Error
	}
	text, isText := c.result.Text()
	if !isText {
		return "(content)"
	}
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return text
}
