package jq

import (
	"strconv"

	"github.com/itchyny/gojq"
)

// kind is what can be said of the values of an expression without running it.
type kind int

const (
	unknown kind = iota
	text
	// constant is a number that is always the same, numeric one that may differ.
	constant
	numeric
	// scalar is null or a boolean.
	scalar
	container
)

func (k kind) isNumber() bool { return k == constant || k == numeric }

func (k kind) isScalar() bool { return k == text || k == scalar || k.isNumber() }

// mayVary says that it may be a number that differs.
func (k kind) mayVary() bool { return k == unknown || k == numeric }

// kind must be asked before counts are put into the query.
func (g *guard) kind(q *gojq.Query) kind {
	if q == nil || len(q.FuncDefs) > 0 {
		return unknown
	}
	if known, ok := g.kinds[q]; ok {
		return known
	}
	var found kind
	if q.Term != nil {
		found = g.kindOfTerm(q.Term)
	} else {
		found = kindOfOperation(q.Op, g.kind(q.Left), g.kind(q.Right))
	}
	g.kinds[q] = found
	return found
}

func kindOfOperation(op gojq.Operator, left, right kind) kind {
	switch op {
	case gojq.OpPipe:
		return right
	case gojq.OpComma, gojq.OpAlt:
		if left == right {
			return left
		}
	case gojq.OpAnd, gojq.OpOr, gojq.OpEq, gojq.OpNe, gojq.OpLt, gojq.OpLe, gojq.OpGt, gojq.OpGe:
		return scalar
	case gojq.OpAdd, gojq.OpSub, gojq.OpMul, gojq.OpDiv, gojq.OpMod:
		return kindOfCalculation(op, left, right)
	default:
	}
	return unknown
}

func kindOfCalculation(op gojq.Operator, left, right kind) kind {
	switch {
	case left == constant && right == constant:
		return constant
	case left.isNumber() && right.isNumber():
		return numeric
	case op == gojq.OpAdd && (left == text || right == text):
		return text
	case op == gojq.OpMul && (left == text || right == text):
		return text
	case op != gojq.OpAdd && op != gojq.OpMul && (left.isNumber() || right.isNumber()):
		return numeric
	}
	return unknown
}

func (g *guard) kindOfTerm(t *gojq.Term) kind {
	if len(t.SuffixList) > 0 {
		return unknown
	}
	switch t.Type {
	case gojq.TermTypeNumber:
		return constant
	case gojq.TermTypeUnary:
		if k := g.kindOfTerm(t.Unary.Term); k.isNumber() {
			return k
		}
		return numeric
	case gojq.TermTypeString, gojq.TermTypeFormat:
		return text
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse:
		return scalar
	case gojq.TermTypeObject, gojq.TermTypeArray:
		return container
	case gojq.TermTypeQuery:
		return g.kind(t.Query)
	case gojq.TermTypeIf:
		if then := g.kind(t.If.Then); t.If.Else != nil && len(t.If.Elif) == 0 && then == g.kind(t.If.Else) {
			return then
		}
	case gojq.TermTypeFunc:
		if !g.isDefined(t.Func) {
			return rules[arity(t.Func.Name, len(t.Func.Args))].gives
		}
	default:
	}
	return unknown
}

// number is the value of a number that is written as such.
func number(q *gojq.Query) (value float64, ok bool) {
	if q == nil || q.Term == nil || len(q.Term.SuffixList) > 0 {
		return 0, false
	}
	switch t := q.Term; t.Type {
	case gojq.TermTypeNumber:
		value, err := strconv.ParseFloat(t.Number, 64)
		return value, err == nil
	case gojq.TermTypeUnary:
		value, ok := number(&gojq.Query{Term: t.Unary.Term})
		return -value, ok && t.Unary.Op == gojq.OpSub
	case gojq.TermTypeQuery:
		return number(t.Query)
	default:
		return 0, false
	}
}

// isWritten says that a query is one constant as it is written.
func isWritten(q *gojq.Query) bool {
	if _, isText := literal(q); isText {
		return true
	}
	if _, isNumber := number(q); isNumber {
		return true
	}
	if q == nil || q.Term == nil || len(q.Term.SuffixList) > 0 || len(q.FuncDefs) > 0 {
		return false
	}
	switch q.Term.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse:
		return true
	default:
		return false
	}
}

// literal is a string without \(…) in it.
func literal(q *gojq.Query) (value string, ok bool) {
	if q == nil || q.Term == nil || q.Term.Type != gojq.TermTypeString || len(q.Term.SuffixList) > 0 || q.Term.Str.Queries != nil {
		return "", false
	}
	return q.Term.Str.Str, true
}
