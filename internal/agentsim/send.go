package agentsim

import (
	"math/rand/v2"
	"strconv"
)

// send renders one event from its own fields (`"k":v,…`, without braces) and hands it to every stream.
func (ss *session) send(typ string, fields func([]byte) []byte) {
	if len(ss.streams) == 0 {
		return
	}
	b := ss.render(ss.scratch[:0], typ, fields)
	ss.scratch = b
	ss.last, ss.lastType = append(ss.last[:0], b...), typ
	ss.broadcast(typ, b)
	ss.noise()
	ss.countTrips()
}

func (ss *session) render(b []byte, typ string, fields func([]byte) []byte) []byte {
	b = append(b, '{')
	if ss.sim.opts.TypeLast {
		b = fields(b)
		b = append(b, ',')
		b = ss.appendEventHead(b, typ)
		return append(b, '}')
	}
	b = ss.appendEventHead(b, typ)
	b = append(b, ',')
	return append(fields(b), '}')
}

func (ss *session) appendEventHead(b []byte, typ string) []byte {
	b = append(b, `"event_id":"`...)
	b = appendID(b, "evt_", ss.sim.ids.Add(1))
	b = append(b, `","type":"`...)
	b = append(b, typ...)
	return append(b, '"')
}

func (ss *session) broadcast(typ string, event []byte) {
	for _, st := range ss.streams {
		st.push(typ, event)
	}
}

func (ss *session) sendSnapshot(typ string, snapshot []byte) {
	ss.send(typ, func(b []byte) []byte {
		return append(append(b, `"session":`...), snapshot...)
	})
}

func (ss *session) appendPlace(b []byte, t *turn) []byte {
	b = append(b, `"session_id":`...)
	b = appendString(b, ss.id)
	b = append(b, `,"turn_id":`...)
	return appendString(b, t.id)
}

func (ss *session) sendTurn(typ string, t *turn, usage bool) {
	ss.send(typ, func(b []byte) []byte {
		b = ss.appendPlace(b, t)
		b = append(b, `,"turn":`...)
		b = t.append(b, ss)
		if usage {
			b = append(b, `,"usage":null`...)
		}
		return b
	})
}

func (ss *session) sendItem(typ string, t *turn, itemJSON []byte, output int) {
	ss.send(typ, ss.itemFields(t, itemJSON, output))
}

func (ss *session) itemFields(t *turn, itemJSON []byte, output int) func([]byte) []byte {
	return func(b []byte) []byte {
		b = ss.appendPlace(b, t)
		if output < 0 {
			b = append(b, `,"output_index":null`...)
		} else {
			b = append(b, `,"output_index":`...)
			b = strconv.AppendInt(b, int64(output), 10)
		}
		b = append(b, `,"item":`...)
		return append(b, itemJSON...)
	}
}

func (ss *session) sendError(code, message string) {
	ss.send("error", func(b []byte) []byte {
		b = append(b, `"session_id":`...)
		b = appendString(b, ss.id)
		b = append(b, `,"error":{"type":"server_error","param":null,"code":`...)
		b = appendString(b, code)
		b = append(b, `,"message":`...)
		return append(appendString(b, message), '}')
	})
}

// sendPart sends one event about the text of a message.
func (ss *session) sendPart(typ string, t *turn, itemID string, output int, key string, value func([]byte) []byte) {
	ss.send(typ, func(b []byte) []byte {
		b = ss.appendPlace(b, t)
		b = append(b, `,"item_id":"`...)
		b = append(b, itemID...)
		b = append(b, `","output_index":`...)
		b = strconv.AppendInt(b, int64(output), 10)
		b = append(b, `,"content_index":0,"`...)
		b = append(b, key...)
		b = append(b, `":`...)
		return value(b)
	})
}

// sendText streams a message in two deltas.
func (ss *session) sendText(t *turn, itemID string, output int, text string) {
	if len(ss.streams) == 0 {
		return
	}
	part := func(text string) func([]byte) []byte {
		return func(b []byte) []byte {
			return append(appendString(append(b, `{"type":"output_text","text":`...), text), '}')
		}
	}
	whole := func(b []byte) []byte { return appendString(b, text) }
	ss.sendPart("agent.session.turn.content_part.added", t, itemID, output, "part", part(""))
	for _, delta := range halves(text) {
		ss.sendPart("agent.session.turn.output_text.delta", t, itemID, output, "delta",
			func(b []byte) []byte { return appendString(b, delta) })
	}
	ss.sendPart("agent.session.turn.output_text.done", t, itemID, output, "text", whole)
	ss.sendPart("agent.session.turn.content_part.done", t, itemID, output, "part", part(text))
}

func halves(text string) []string {
	runes := []rune(text)
	return []string{string(runes[:len(runes)/2]), string(runes[len(runes)/2:])}
}

// sendDeltas streams n pieces of commentary, as a model does before it calls a function.
func (ss *session) sendDeltas(t *turn, n int) {
	if len(ss.streams) == 0 || n <= 0 {
		return
	}
	id := ss.sim.newID("msg_")
	word := func(b []byte) []byte { return append(b, `" and so on"`...) }
	for range n {
		ss.sendPart("agent.session.turn.output_text.delta", t, id, t.outputs, "delta", word)
	}
}

// noise adds what the documents allow and nobody needs, after every fifth event.
func (ss *session) noise() {
	if !ss.sim.opts.Noise {
		return
	}
	ss.sent++
	if ss.sent%5 != 0 {
		return
	}
	const unheard, subagent = "agent.session.turn.unheard_of", "agent.session.turn.completed"
	ss.broadcast(unheard, ss.render(nil, unheard, func(b []byte) []byte {
		return append(b, `"session":{"id":"sess_x","status":"failed","required_actions":[]},"item":{"type":"function_call"}`...)
	}))
	ss.broadcast(subagent, ss.render(nil, subagent, func(b []byte) []byte {
		t := &turn{id: "turn_of_subagent", status: statusCompleted, created: ss.created, started: ss.created, completed: ss.created}
		b = ss.appendPlace(b, t)
		b = append(b, `,"usage":null,"turn":`...)
		b = append(t.append(b, ss), `,"x":1`...)
		return b
	}))
	for _, st := range ss.streams {
		st.comment("noise")
	}
}

// appendObfuscation pads an event to an unpredictable length, as the API does.
func appendObfuscation(b []byte) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	b = append(b, `,"obfuscation":"`...)
	for range 1 + rand.IntN(24) { //nolint:gosec // padding of a simulation
		b = append(b, letters[rand.IntN(len(letters))]) //nolint:gosec // as above
	}
	return append(b, '"')
}
