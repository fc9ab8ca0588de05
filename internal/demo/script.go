package demo

import (
	"slices"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// The sessions of the script.
const (
	Support  = "sess_support"
	Shipping = "sess_shipping"
)

// Scene is one turn of a session: what the user says, and what the agent then
// does at once.
type Scene struct {
	Session string
	Message string
	Calls   []Call
	// Approval adds a computer-use approval request, which is nothing for a
	// bridge.
	Approval bool
}

func (s Scene) step() agentsim.Step {
	var step agentsim.Step
	for _, c := range s.Calls {
		step = append(step, agentsim.Call(c.Function, c.Arguments).WithID(c.ID))
	}
	if s.Approval { // in the midst of the calls
		step = slices.Insert(step, len(step)/2, agentsim.Approval())
	}
	return step
}

// Call is a function call and what must come of it.
type Call struct {
	ID       string
	Function string
	// Arguments is the JSON value that the API sends, byte for byte.
	Arguments string
	// Note says to a reader of the trace what is worth a look.
	Note string

	// Request is "METHOD service URI" as the service must receive it, empty when
	// nothing may be sent; Body is its body, byte for byte.
	Request, Body string
	// Statuses are those of the attempts, 0 where no reply came.
	Statuses []int
	// Output is the whole output of a success. A failure has a Failure instead,
	// and an error that holds Tells and does not hold Hides.
	Output       string
	Failure      journal.Kind
	Tells, Hides string
}

// Script is the conversation that `bridge demo` plays with the sample table.
func Script() []Scene {
	return []Scene{answers(), refusals(), failures(), waits()}
}

// answers: calls that succeed, in the forms that arguments come in.
func answers() Scene {
	const note = `{"customer_id": 9007199254740993,  "text": "Called about order 1007 \u2603", "amount": 12.50}`
	return Scene{
		Session: Support,
		Message: "Who is customer 9007199254740993, what has she ordered, and do we have good weather? Note that she called.",
		Calls: []Call{
			{
				ID: "call_1", Function: "get_weather", Arguments: `{"city":"Oslo"}`,
				Note:    "the shortest route, a name and a URL: POST the arguments there",
				Request: "POST shop /weather", Body: `{"city":"Oslo"}`, Statuses: []int{200},
				Output: `{"city":"Oslo","celsius":11.0,"sky":"light rain"}`,
			},
			{
				ID: "call_2", Function: "get_customer",
				Arguments: `"{\"customer_id\":9007199254740993,\"expand\":[\"address\",\"orders\"]}"`,
				Note:      "arguments given as a JSON string; the integer keeps all its digits",
				Request:   "GET shop /customers/9007199254740993?expand=address&expand=orders", Statuses: []int{200},
				Output: `{"customer_id":9007199254740993,"name":"Ada Lovelace","address":"Karl Johans gate 1, Oslo","orders":[1007]}`,
			},
			{
				ID: "call_3", Function: "find_orders", Arguments: `{"status":"open","limit":5}`,
				Note:    "a GET has no body: the arguments become query parameters",
				Request: "GET shop /orders?sort=newest&status=open&limit=5", Statuses: []int{200},
				Output: `[{"order_id":1007,"status":"open","total":129.90}]`,
			},
			{
				ID: "call_4", Function: "add_note", Arguments: note,
				Note:    "sent byte for byte: blanks, escapes and 12.50 stay",
				Request: "POST shop /customers/9007199254740993/notes", Body: note, Statuses: []int{201},
				Output: `{"note_id":31,"kept":` + note + `}`,
			},
		},
	}
}

// refusals: calls for which nothing is sent, and what is not the bridge's.
func refusals() Scene {
	return Scene{
		Session:  Support,
		Message:  "Cancel the order, look her up once more, and open the shop's page.",
		Approval: true,
		Calls: []Call{
			{
				ID: "call_5", Function: "cancel_order", Arguments: `{"order_id":1007}`,
				Note:    "the route table has no such function",
				Failure: journal.UnknownFunction, Tells: "cancel_order",
			},
			{
				ID: "call_6", Function: "get_customer", Arguments: `{"id":17}`,
				Note:    "the arguments do not fit the route's parameters",
				Failure: journal.InvalidArguments, Tells: "customer_id",
			},
		},
	}
}

// failures: what a service says, and what it says that no agent should hear.
func failures() Scene {
	const label = `{"parcel_id":"NO-17/3","weight_kg":120}`
	return Scene{
		Session: Shipping,
		Message: "Where is parcel NO-17/3? Print a label for it, and list the depots.",
		Calls: []Call{
			{
				ID: "call_7", Function: "track_parcel", Arguments: `{"parcel_id":"NO-17/3"}`,
				Note:    "404: the agent is told the reply's detail; the slash stays in its place",
				Request: "GET carrier /parcels/NO-17%2F3", Statuses: []int{404},
				Failure: journal.NotFound, Tells: "There is no parcel NO-17/3. Parcels are forgotten 90 days after delivery.",
			},
			{
				ID: "call_8", Function: "create_label", Arguments: label,
				Note:    "422: the agent is told what to correct",
				Request: "POST carrier /labels", Body: label, Statuses: []int{422},
				Failure: journal.InvalidArguments, Tells: "weight_kg is 120, but a parcel weighs at most 30 kg.",
			},
			{
				ID: "call_9", Function: "list_depots", Arguments: `{}`,
				Note:    "a crash with an HTML page: tried twice, and the page is kept back",
				Request: "GET carrier /depots", Statuses: []int{500, 500},
				Failure: journal.UpstreamError, Tells: "500", Hides: "NullPointer",
			},
		},
	}
}

// waits: services that need a moment, or never answer.
func waits() Scene {
	const pickup, loss = `{"parcel_id":"NO-18"}`, `{"parcel_id":"NO-17/3","value":{"amount":80.00,"currency":"NOK"}}`
	return Scene{
		Session: Shipping,
		Message: "Have NO-18 picked up, say when it will arrive, and report NO-17/3 as lost.",
		Calls: []Call{
			{
				ID: "call_10", Function: "book_pickup", Arguments: pickup,
				Note:    "busy at first: sent again when Retry-After allows, with the same key",
				Request: "POST carrier /pickups", Body: pickup, Statuses: []int{503, 201},
				Output: `{"pickup":"today, 16:00"}`,
			},
			{
				ID: "call_11", Function: "estimate_delivery", Arguments: `{"parcel_id":"NO-18"}`,
				Note:    "no answer within the 2 s that the route allows",
				Request: "GET carrier /estimates/NO-18", Statuses: []int{0},
				Failure: journal.Timeout, Tells: "within 2 s",
			},
			{
				ID: "call_12", Function: "report_loss", Arguments: loss,
				Note:    "no answer either, and it must not be done twice: sent once",
				Request: "POST carrier /losses", Body: loss, Statuses: []int{0},
				Failure: journal.UnknownOutcome, Tells: "not known whether report_loss was carried out",
			},
		},
	}
}
