package journal

// State is how far a call has come. The words are the same in code, SQL, logs,
// metrics and JSON.
type State string

// The states of a call.
//
//	pending ─▶ running ─▶ answered ─▶ submitted ─▶ confirmed
//	   ▲          │  │        ▲
//	   └──────────┘  └▶ in_doubt
//	any state before confirmed ─▶ abandoned ─listed again▶ pending, running, answered
const (
	// Pending: seen in the session, nothing sent yet, or certainly not processed.
	Pending State = "pending"
	// Running: a request is leaving, or left, and its outcome is not known.
	Running State = "running"
	// Answered: the outcome is known and not yet accepted by the API.
	Answered State = "answered"
	// Submitted: the API accepted the result (2xx), which is not yet proof.
	Submitted State = "submitted"
	// Confirmed: the session says that it has the result.
	Confirmed State = "confirmed"
	// InDoubt: the outcome is unknown and an operator must say what it was.
	InDoubt State = "in_doubt"
	// Abandoned: no longer wanted, and no proof that it was delivered.
	Abandoned State = "abandoned"
)

// States lists every state in the order of a call's life.
func States() []State {
	return []State{Pending, Running, Answered, Submitted, Confirmed, InDoubt, Abandoned}
}

// Settled reports whether nothing more is to be done for a call in this state.
func (s State) Settled() bool { return s == Confirmed || s == Abandoned }

// next is the state machine; see CanReach. A crash can lose the rows between two durable
// points, so answered is reached from pending too, and confirmed from every
// state: the session's word is stronger than ours.
func next(s State) []State {
	switch s {
	case Pending:
		return []State{Running, Answered, Submitted, Confirmed, InDoubt, Abandoned}
	case Running:
		return []State{Pending, Answered, Submitted, Confirmed, InDoubt, Abandoned}
	case InDoubt:
		return []State{Pending, Answered, Submitted, Confirmed, Abandoned}
	case Answered:
		return []State{Submitted, Confirmed, Abandoned}
	case Submitted:
		return []State{Answered, Confirmed, Abandoned}
	case Abandoned:
		// The session lists it again: it was only away.
		return []State{Pending, Running, Answered}
	case Confirmed:
		return nil
	}
	return nil
}
