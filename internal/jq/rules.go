package jq

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// rule is how a function of jq stands in a program. The zero rule is that of one
// whose cost is in its steps, or does not grow with its input.
type rule struct {
	// before counts what the function makes of its input and arguments; with
	// expressions for arguments it is given the input only.
	before      count
	expressions bool
	// each names the count of what its first argument gives, where that is kept.
	each string
	// made counts each value that it gives.
	made bool
	// own is a function that takes its place; with list, it gives the elements of
	// what that returns.
	own  func(m *machine, in any, args []any) any
	list bool
	// rewrite makes another expression of the call.
	rewrite func(g *guard, f *gojq.Func) *gojq.Query
	// pattern says that the first argument is a regular expression.
	pattern bool
	// gives is what its values are.
	gives kind
}

// rules are the functions that programs may use: "name/arity".
var rules = allRules() //nolint:gochecknoglobals // a table that nobody changes

func allRules() map[string]rule {
	all := map[string]rule{}
	for name := range strings.FieldsSeq(`
		empty/0 error/0 error/1 not/0 type/0 length/0 utf8bytelength/0 has/1 in/1 select/1 abs/0 toboolean/0 bsearch/1
		recurse/0 recurse/1 recurse/2 while/2 until/2 repeat/1 range/1 range/2 range/3 limit/2 skip/2 first/0 first/1 last/0 last/1
		nth/2 isempty/1 all/0 all/1 all/2 any/0 any/1 any/2 pick/1
		arrays/0 objects/0 iterables/0 booleans/0 numbers/0 finites/0 normals/0 strings/0 nulls/0 values/0 scalars/0
		startswith/1 endswith/1 ltrimstr/1 rtrimstr/1 trimstr/1 trim/0 ltrim/0 rtrim/0
		now/0 mktime/0 todate/0 fromdate/0 fromdateiso8601/0 todateiso8601/0
		infinite/0 nan/0 isinfinite/0 isnan/0 isnormal/0 isfinite/0
		acos/0 acosh/0 asin/0 asinh/0 atan/0 atan2/2 atanh/0 cbrt/0 copysign/2 cos/0 cosh/0 drem/2 erf/0 erfc/0 fabs/0 exp/0 exp10/0 exp2/0
		expm1/0 fdim/2 fma/3 fmax/2 fmin/2 fmod/2 gamma/0 hypot/2 j0/0 j1/0 jn/2 ldexp/2 lgamma/0 log/0 log10/0 log1p/0 log2/0
		logb/0 nextafter/2 nexttoward/2 pow/2 remainder/2 scalb/2 scalbln/2 significand/0 sin/0 sinh/0 sqrt/0 tan/0 tanh/0 tgamma/0
		y0/0 y1/0 yn/2`) {
		all[name] = rule{}
	}
	for _, group := range []map[string]rule{listRules(), pathRules(), textRules(), patternRules(), numberRules()} {
		maps.Copy(all, group)
	}
	for name := range strings.FieldsSeq("tostring/0 tojson/0 ascii_downcase/0 ascii_upcase/0 join/1 implode/0 type/0 " +
		"ltrimstr/1 rtrimstr/1 trimstr/1 trim/0 ltrim/0 rtrim/0 todate/0 todateiso8601/0 strftime/1 strflocaltime/1 format/1 sub/2 sub/3 gsub/2 gsub/3") {
		r := all[name]
		r.gives = text
		all[name] = r
	}
	return all
}

func listRules() map[string]rule {
	return map[string]rule{
		"map/1":          {each: "each:element"},
		"add/0":          {before: summed},
		"add/1":          {each: "each:part"},
		"keys/0":         {before: flatly(0, perElement)},
		"reverse/0":      {before: flatly(0, perElement)},
		"to_entries/0":   {before: flatly(0, perEntry)},
		"from_entries/0": {before: flatly(0, perEntry)},
		"with_entries/1": {before: flatly(0, 2*perEntry), each: "each:entry"},
		"map_values/1":   {before: flatly(2, 0), expressions: true},
		"flatten/0":      {before: deeply(2)},
		"flatten/1":      {before: deeply(2)},
		"walk/1":         {before: deeply(20), each: "each:element"},
		"min/0":          {before: sorted},
		"max/0":          {before: sorted},
		"sort/0":         {before: sorted},
		"unique/0":       {before: sorted},
		"min_by/1":       {before: flatly(0, perElement), each: "each:key"},
		"max_by/1":       {before: flatly(0, perElement), each: "each:key"},
		"sort_by/1":      {before: flatly(0, perElement), each: "each:key"},
		"group_by/1":     {before: flatly(0, 2*perElement), each: "each:key"},
		"unique_by/1":    {before: flatly(0, perElement), each: "each:key"},
		"contains/1":     {before: multiplied},
		"inside/1":       {before: multiplied},
		"transpose/0":    {before: transposed},
		"combinations/0": {made: true},
		"combinations/1": {before: repeated, made: true},
		"IN/1":           {each: "each:deep"},
		"IN/2":           {each: "each:deep"},
		"INDEX/1":        {rewrite: keyedBy},
		"INDEX/2":        {rewrite: keyedBy},
		"JOIN/2":         {before: flatly(0, 2*perElement), expressions: true},
		"JOIN/3":         {made: true},
		"JOIN/4":         {},
	}
}

func pathRules() map[string]rule {
	return map[string]rule{
		"path/1":     {made: true},
		"paths/0":    {made: true},
		"paths/1":    {made: true},
		"tostream/0": {made: true},
		"nth/1":      {before: func(m *machine, _ any, args []any) error { return indexed(m, args[0], nil) }},
		"getpath/1":  {before: pathed},
		"setpath/2":  {before: func(m *machine, in any, args []any) error { return pathed(m, in, args[:1]) }},
		"delpaths/1": {before: worked},
		"del/1":      {before: worked, expressions: true},
	}
}

func textRules() map[string]rule {
	return map[string]rule{
		"tostring/0":       {before: written},
		"tojson/0":         {before: written},
		"format/1":         {before: written},
		"fromjson/0":       {before: decoded},
		"tonumber/0":       {before: digits, gives: numeric},
		"explode/0":        {before: flatly(28, 0)},
		"implode/0":        {before: flatly(1, 0)},
		"ascii_downcase/0": {before: flatly(1, 0)},
		"ascii_upcase/0":   {before: flatly(1, 0)},
		"split/1":          {before: splitted},
		"join/1":           {before: summed},
		"index/1":          {own: indexOf(firstOnly)},
		"rindex/1":         {own: indexOf(lastOnly)},
		"indices/1":        {own: indexOf(allOfThem)},
		"strptime/1":       {made: true},
		"gmtime/0":         {made: true},
		"localtime/0":      {made: true},
		"strftime/1":       {before: dated},
		"strflocaltime/1":  {before: dated},
	}
}

func numberRules() map[string]rule {
	all := map[string]rule{
		"frexp/0": {made: true},
		"modf/0":  {made: true},
	}
	for name, f := range map[string]func(float64) float64{
		"floor": math.Floor, "ceil": math.Ceil, "round": math.Round, "trunc": math.Trunc,
		"rint": math.RoundToEven, "nearbyint": math.RoundToEven,
	} {
		all[name+"/0"] = rule{own: rounded(name, f), gives: numeric}
	}
	return all
}

// written counts the text of a value, in which a byte may take several.
func written(m *machine, in any, _ []any) error {
	if _, isText := in.(string); isText {
		return m.charge(4 * flat(in))
	}
	return m.deep(in, 4)
}

// repeated counts combinations(n).
func repeated(m *machine, _ any, args []any) error {
	n, _ := gojq.ToInt(args[0])
	if int64(n) > m.left/perElement {
		return m.charge(m.left + 1)
	}
	return m.charge(perElement * int64(max(n, 0)))
}

// dated counts strftime: a directive of five letters may make a thousand.
func dated(m *machine, _ any, args []any) error { return m.charge(250 * flat(args[0])) }

// refusals are the functions and variables of jq that programs may not use, and
// why.
var refusals = allRefusals() //nolint:gochecknoglobals // a table that nobody changes

func allRefusals() map[string]string {
	all := map[string]string{}
	for why, names := range map[string]string{
		"a program sees its input and its variables, nothing else":    environment + " env input inputs input_filename input_line_number input_string",
		"a program does nothing but give a value":                     "debug stderr",
		`a program does nothing but give a value; error("…") ends it`: "halt halt_error",
		"is not available": "modulemeta get_search_list builtins fromstream truncate_stream $__loc__ $__prog_args",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = why
		}
	}
	return all
}

const environment = "$ENV"

// names are the functions that programs may use, without their arity.
func names() []string {
	var all []string
	for name := range rules {
		all = append(all, name[:strings.IndexByte(name, '/')])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// function is one that a count, or an implementation of our own, is called by.
type function struct {
	args  int
	count count
	own   func(m *machine, in any, args []any) any
}

// ours are all of them by their names, which hold a colon.
var ours = allOurs() //nolint:gochecknoglobals // a table that nobody changes

func allOurs() map[string]function {
	all := map[string]function{
		"own:parts":  {args: 3, own: parted},
		"own:object": {own: objectOf},
		"own:joined": {own: joined},
	}
	for name, r := range rules {
		args := int(name[len(name)-1] - '0')
		if r.before != nil {
			all["before:"+name] = function{args: valueArgs(r, args), count: r.before}
		}
		if r.own != nil {
			all["own:"+name] = function{args: args, own: r.own}
		}
	}
	for _, op := range []gojq.Operator{gojq.OpAdd, gojq.OpSub, gojq.OpMul, gojq.OpDiv, gojq.OpMod, gojq.OpEq, gojq.OpNe, gojq.OpLt, gojq.OpLe, gojq.OpGt, gojq.OpGe} {
		all["before:"+op.String()] = function{args: 2, count: calculated(op)}
	}
	for name, c := range map[string]count{
		"before:=":     assigned,
		"before:index": indexed,
		"before:text":  written,
		"made:object":  constructed,
		"made:value":   flatly(1, 8),
		"each:element": fixed(perElement),
		"each:entry":   fixed(2 * perEntry),
		"each:part":    flatly(1, 8),
		"each:key":     keyed,
		"each:deep":    deeply(1),
	} {
		all[name] = function{count: c}
	}
	return all
}

// options make those functions known that a program uses.
func (m *machine) options(used map[string]bool) []gojq.CompilerOption {
	options := make([]gojq.CompilerOption, 0, len(used)+1)
	for name := range used {
		f := ours[name]
		options = append(options, gojq.WithFunction(name, f.args, f.args, func(in any, args []any) any {
			if f.own != nil {
				return f.own(m, in, args)
			}
			if err := f.count(m, in, args); err != nil {
				return err
			}
			return in
		}))
	}
	return options
}

// valueArgs is how many arguments a count is given: none where they are
// expressions.
func valueArgs(r rule, args int) int {
	if r.each != "" || r.expressions {
		return 0
	}
	return args
}

func fixed(size int64) count {
	return func(m *machine, _ any, _ []any) error { return m.charge(size) }
}

func constructed(m *machine, in any, _ []any) error {
	return m.charge(perObject + perMoreMember*int64(max(0, length(in)-8)))
}

// keyed counts what lists are sorted by, which is compared again and again.
func keyed(m *machine, in any, _ []any) error {
	if err := m.charge(2 * perElement); err != nil {
		return err
	}
	return m.deep(in, 2)
}
