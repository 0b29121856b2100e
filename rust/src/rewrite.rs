//! A template's syntax tree written back as template source, with three changes:
//!   - text that can reach the output carries marks (marks.rs); text that is only compared with something stays as it is, and what it
//!     is compared with is compared without marks (`__plain`);
//!   - values that instructions make pass `__check`, which charges their size (limits.rs);
//!   - `+`, `~` and `*` add, print and repeat as in Python, under limits.
//! Rendering the twin without marks is the reference rendering; statements keep their lines, so errors name the right one.
//!
//! Source is written, not the tree compiled, because minijinja compiles text only; a fork of minijinja with strings that carry
//! provenance was the alternative.

use crate::marks::{Marks, Mode};
use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Stmt, UnaryOpKind};
use minijinja::machinery::Span;
use minijinja::value::{Value, ValueKind};
use std::fmt::Write;

/// Tests that look at a value's text.
const COMPARING_TESTS: [&str; 19] = [
    "eq", "equalto", "==", "ne", "!=", "in", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">=", "startingwith", "endingwith",
    "containing",
];
/// Filters whose arguments name attributes or tests, or are compared.
const NAMING_FILTERS: [&str; 17] = [
    "select", "reject", "selectattr", "rejectattr", "map", "groupby", "sort", "unique", "attr", "sum", "min", "max", "dictsort", "tojson", "round", "int",
    "float",
];

pub struct Rewriter<'m> {
    marks: &'m Marks,
    mode: Mode,
    out: String,
    line: usize, // of the end of `out`, from 1
}

type Outcome = Result<(), String>;

// a + b + c + …: the operands of a chain that the parser nests to the left, so that the twin does not nest.
fn chain<'e, 'a>(op: &'e ast::BinOp<'a>) -> Vec<&'e Expr<'a>> {
    let mut operands = vec![&op.right];
    let mut left = &op.left;
    while let Expr::BinOp(inner) = left {
        if std::mem::discriminant(&inner.op) != std::mem::discriminant(&op.op) {
            break;
        }
        operands.push(&inner.right);
        left = &inner.left;
    }
    operands.push(left);
    operands.reverse();
    operands
}

pub fn rewrite(root: &Stmt, marks: &Marks, mode: Mode) -> Result<String, String> {
    let mut rewriter = Rewriter { marks, mode, out: String::new(), line: 1 };
    match root {
        Stmt::Template(template) => rewriter.body(&template.children)?,
        _ => return Err("not a template".into()),
    }
    Ok(rewriter.out)
}

impl Rewriter<'_> {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    // Opens a tag at the line where it stood; line breaks inside a tag mean nothing.
    fn open(&mut self, tag: &str, span: Span) {
        self.put(tag);
        while self.line < span.start_line as usize {
            self.out.push('\n');
            self.line += 1;
        }
    }

    fn body(&mut self, statements: &[Stmt]) -> Outcome {
        statements.iter().try_for_each(|s| self.statement(s))
    }

    fn statement(&mut self, statement: &Stmt) -> Outcome {
        match statement {
            Stmt::EmitRaw(raw) => {
                let text = self.marks.mark_own(raw.raw, self.mode);
                self.open("{{", raw.span());
                self.string(&text);
                self.put("}}");
            }
            Stmt::EmitExpr(emit) => {
                self.open("{{", emit.span());
                self.expression(&emit.expr)?;
                self.put("}}");
            }
            Stmt::ForLoop(node) => self.for_loop(node)?,
            Stmt::IfCond(node) => self.if_statement(node)?,
            Stmt::WithBlock(node) => {
                self.open("{%", node.span());
                self.put("with ");
                for (i, (target, value)) in node.assignments.iter().enumerate() {
                    self.put(if i > 0 { "," } else { "" });
                    self.target(target, true)?;
                    self.put("=");
                    self.expression(value)?;
                }
                self.put("%}");
                self.body(&node.body)?;
                self.put("{%endwith%}");
            }
            Stmt::Set(node) => {
                self.open("{%", node.span());
                self.put("set ");
                self.target(&node.target, false)?;
                match &node.target {
                    Expr::Var(_) => {
                        self.put("=");
                        self.expression(&node.expr)?;
                    }
                    _ => {
                        self.put("=(");
                        self.expression(&node.expr)?;
                        self.put(")|__stored");
                    }
                }
                self.put("%}");
            }
            Stmt::SetBlock(node) => {
                self.open("{%", node.span());
                self.put("set ");
                self.target(&node.target, false)?;
                if let Some(filter) = &node.filter {
                    self.put("|");
                    self.filter_chain(filter)?;
                }
                self.put("|__check%}");
                self.body(&node.body)?;
                self.put("{%endset%}");
            }
            Stmt::FilterBlock(node) => {
                self.open("{%", node.span());
                self.put("filter ");
                self.filter_chain(&node.filter)?;
                self.put("|__check%}");
                self.body(&node.body)?;
                self.put("{%endfilter%}");
            }
            Stmt::Macro(node) => {
                self.open("{%", node.span());
                write!(self.out, "macro {}", node.name).expect("to a string");
                self.macro_rest(node, "endmacro")?;
            }
            Stmt::CallBlock(node) => {
                self.open("{%", node.span());
                self.put("call");
                self.parameters(&node.macro_decl)?;
                self.put(" ");
                self.call(&node.call)?;
                self.put("%}");
                self.body(&node.macro_decl.body)?;
                self.put("{%endcall%}");
            }
            Stmt::Do(node) => {
                self.open("{%", node.span());
                self.put("do ");
                self.call(&node.call)?;
                self.put("%}");
            }
            Stmt::Continue(node) => {
                self.open("{%", node.span());
                self.put("continue%}");
            }
            Stmt::Break(node) => {
                self.open("{%", node.span());
                self.put("break%}");
            }
            Stmt::AutoEscape(node) => return Err(format!("line {}: autoescape blocks are not supported", node.span().start_line)),
            _ => return Err("block, extends, include and import are not supported in chat templates".into()),
        }
        Ok(())
    }

    // Branches one after the other: the parser bounds how deep blocks nest, not how many branches there are.
    fn if_statement(&mut self, first: &ast::Spanned<ast::IfCond>) -> Outcome {
        let mut node = first;
        let mut word = "if ";
        loop {
            self.open("{%", node.span());
            self.put(word);
            self.expression(&node.expr)?;
            self.put("%}");
            self.body(&node.true_body)?;
            match node.false_body.as_slice() {
                [] => break,
                [Stmt::IfCond(next)] => node = next,
                body => {
                    self.put("{%else%}");
                    self.body(body)?;
                    break;
                }
            }
            word = "elif ";
        }
        self.put("{%endif%}");
        Ok(())
    }

    fn for_loop(&mut self, node: &ast::Spanned<ast::ForLoop>) -> Outcome {
        self.open("{%", node.span());
        self.put("for ");
        self.target(&node.target, false)?;
        self.put(" in ");
        self.expression(&node.iter)?;
        if let Some(filter) = &node.filter_expr {
            self.put(" if ");
            self.expression(filter)?;
        }
        self.put(if node.recursive { " recursive%}" } else { "%}" });
        self.body(&node.body)?;
        if !node.else_body.is_empty() {
            self.put("{%else%}");
            self.body(&node.else_body)?;
        }
        self.put("{%endfor%}");
        Ok(())
    }

    fn macro_rest(&mut self, node: &ast::Macro, end: &str) -> Outcome {
        self.parameters(node)?;
        self.put("%}");
        self.body(&node.body)?;
        write!(self.out, "{{%{end}%}}").expect("to a string");
        Ok(())
    }

    fn parameters(&mut self, node: &ast::Macro) -> Outcome {
        self.put("(");
        let first_default = node.args.len() - node.defaults.len();
        for (i, arg) in node.args.iter().enumerate() {
            self.put(if i > 0 { "," } else { "" });
            self.target(arg, false)?;
            if i >= first_default {
                self.put("=");
                self.expression(&node.defaults[i - first_default])?;
            }
        }
        self.put(")");
        Ok(())
    }

    // What is assigned to: a name, ns.name, or a tuple of them.
    fn target(&mut self, target: &Expr, nested: bool) -> Outcome {
        match target {
            Expr::Var(var) => self.put(var.id),
            Expr::GetAttr(attr) => {
                self.target(&attr.expr, true)?;
                self.put(".");
                self.put(attr.name);
            }
            Expr::List(list) => {
                self.put(if nested { "(" } else { "" });
                for (i, item) in list.items.iter().enumerate() {
                    self.put(if i > 0 { "," } else { "" });
                    self.target(item, true)?;
                }
                self.put(if list.items.len() == 1 { "," } else { "" });
                self.put(if nested { ")" } else { "" });
            }
            _ => return Err("an assignment to something that is not a name".into()),
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.put("\\\""),
                '\\' => self.put("\\\\"),
                '\n' => self.put("\\n"),
                '\r' => self.put("\\r"),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn constant(&mut self, value: &Value, own: bool) -> Outcome {
        match value.kind() {
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                match own {
                    true => self.string(&self.marks.mark_own(text, self.mode)),
                    false => self.string(text),
                }
            }
            ValueKind::None | ValueKind::Undefined => self.put("none"),
            ValueKind::Bool => self.put(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.put(&value.to_string()),
            ValueKind::Number => {
                let x = f64::try_from(value.clone()).map_err(|e| e.to_string())?;
                if !x.is_finite() {
                    return Err("a number that is too large".into());
                }
                write!(self.out, "{x:?}").expect("to a string");
            }
            kind => return Err(format!("a constant of kind {kind}")),
        }
        Ok(())
    }

    // An operand of a comparison, a subscript, a key: seen without marks.
    fn plain(&mut self, expr: &Expr) -> Outcome {
        match expr {
            Expr::Const(constant) => self.constant(&constant.value, false),
            Expr::List(list) => {
                self.put("[");
                for item in &list.items {
                    self.plain(item)?;
                    self.put(",");
                }
                self.put("]");
                Ok(())
            }
            _ => {
                self.put("(");
                self.expression(expr)?;
                self.put("|__plain)");
                Ok(())
            }
        }
    }

    fn checked(&mut self, inner: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        self.put("(");
        inner(self)?;
        self.put("|__check)");
        Ok(())
    }

    fn expression(&mut self, expr: &Expr) -> Outcome {
        match expr {
            Expr::Var(var) => self.put(var.id),
            Expr::Const(constant) => self.constant(&constant.value, true)?,
            Expr::Slice(slice) => self.checked(|r| {
                r.put("(");
                r.expression(&slice.expr)?;
                r.put(")[");
                for (i, bound) in [&slice.start, &slice.stop, &slice.step].into_iter().enumerate() {
                    r.put(if i > 0 { ":" } else { "" });
                    bound.as_ref().map_or(Ok(()), |e| r.expression(e))?;
                }
                r.put("]");
                Ok(())
            })?,
            Expr::UnaryOp(op) => {
                self.put(if matches!(op.op, UnaryOpKind::Not) { "(not (" } else { "(-(" });
                self.expression(&op.expr)?;
                self.put("))");
            }
            Expr::BinOp(op) => self.binary(op)?,
            Expr::Compare(compare) => self.comparison(compare)?,
            Expr::IfExpr(node) => {
                self.put("((");
                self.expression(&node.true_expr)?;
                self.put(") if (");
                self.expression(&node.test_expr)?;
                if let Some(otherwise) = &node.false_expr {
                    self.put(") else (");
                    self.expression(otherwise)?;
                }
                self.put("))");
            }
            Expr::Filter(filter) => {
                self.filter(filter)?;
                self.put("|__check");
            }
            Expr::Test(test) => self.test(test)?,
            Expr::GetAttr(attr) => {
                self.postfix_base(&attr.expr)?;
                self.put(".");
                self.put(attr.name);
            }
            Expr::GetItem(item) => {
                self.postfix_base(&item.expr)?;
                self.put("[");
                self.plain(&item.subscript_expr)?;
                self.put("]");
            }
            // Only a bare call of `loop` recurses.
            Expr::Call(call) if matches!(&call.expr, Expr::Var(var) if var.id == "loop") => self.call(call)?,
            Expr::Call(call) => self.checked(|r| r.call(call))?,
            Expr::List(list) => self.checked(|r| {
                r.put("[");
                for item in &list.items {
                    r.expression(item)?;
                    r.put(",");
                }
                r.put("]");
                Ok(())
            })?,
            Expr::Map(map) => self.checked(|r| {
                r.put("{");
                for (key, value) in map.keys.iter().zip(&map.values) {
                    r.plain(key)?;
                    r.put(":");
                    r.expression(value)?;
                    r.put(",");
                }
                r.put("}");
                Ok(())
            })?,
        }
        Ok(())
    }

    // What stands before `.name` and `[…]`.
    fn postfix_base(&mut self, expr: &Expr) -> Outcome {
        if matches!(expr, Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_)) {
            return self.expression(expr);
        }
        self.put("(");
        self.expression(expr)?;
        self.put(")");
        Ok(())
    }

    fn binary(&mut self, op: &ast::BinOp) -> Outcome {
        let sign = match op.op {
            BinOpKind::Eq => "==",
            BinOpKind::Ne => "!=",
            BinOpKind::Lt => "<",
            BinOpKind::Lte => "<=",
            BinOpKind::Gt => ">",
            BinOpKind::Gte => ">=",
            BinOpKind::In => " in ",
            BinOpKind::ScAnd => " and ",
            BinOpKind::ScOr => " or ",
            BinOpKind::Add => "+",
            BinOpKind::Sub => "-",
            BinOpKind::Mul => "*",
            BinOpKind::Div => "/",
            BinOpKind::FloorDiv => "//",
            BinOpKind::Rem => "%",
            BinOpKind::Pow => "**",
            BinOpKind::Concat => "~",
        };
        match op.op {
            BinOpKind::Eq | BinOpKind::Ne | BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte | BinOpKind::In => {
                self.put("(");
                self.plain(&op.left)?;
                self.put(sign);
                self.plain(&op.right)?;
                self.put(")");
                Ok(())
            }
            BinOpKind::ScAnd | BinOpKind::ScOr => {
                self.put("(");
                for (i, operand) in chain(op).into_iter().enumerate() {
                    self.put(if i > 0 { sign } else { "" });
                    self.put("(");
                    self.expression(operand)?;
                    self.put(")");
                }
                self.put(")");
                Ok(())
            }
            BinOpKind::Sub | BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Pow => self.operands(op, sign),
            BinOpKind::Rem => self.checked(|r| r.operands(op, sign)),
            BinOpKind::Add => self.operator_filter(op, "__add"),
            BinOpKind::Concat => self.operator_filter(op, "__concat"),
            BinOpKind::Mul => self.operator_filter(op, "__multiply"),
        }
    }

    fn operator_filter(&mut self, op: &ast::BinOp, name: &str) -> Outcome {
        let operands = chain(op);
        self.put("((");
        self.expression(operands[0])?;
        write!(self.out, ")|{name}(").expect("to a string");
        for operand in &operands[1..] {
            self.expression(operand)?;
            self.put(",");
        }
        self.put("))");
        Ok(())
    }

    fn operands(&mut self, op: &ast::BinOp, sign: &str) -> Outcome {
        self.put("((");
        self.expression(&op.left)?;
        self.put(")");
        self.put(sign);
        self.put("(");
        self.expression(&op.right)?;
        self.put("))");
        Ok(())
    }

    fn comparison(&mut self, compare: &ast::Compare) -> Outcome {
        self.put("(");
        self.plain(&compare.expr)?;
        for op in &compare.ops {
            self.put(match op.op {
                ast::CompareOpKind::Eq => "==",
                ast::CompareOpKind::Ne => "!=",
                ast::CompareOpKind::Lt => "<",
                ast::CompareOpKind::Lte => "<=",
                ast::CompareOpKind::Gt => ">",
                ast::CompareOpKind::Gte => ">=",
                ast::CompareOpKind::In => " in ",
                ast::CompareOpKind::NotIn => " not in ",
            });
            self.plain(&op.expr)?;
        }
        self.put(")");
        Ok(())
    }

    fn test(&mut self, test: &ast::Test) -> Outcome {
        let comparing = COMPARING_TESTS.contains(&test.name);
        self.put("(");
        match comparing {
            true => self.plain(&test.expr)?,
            false => {
                self.put("(");
                self.expression(&test.expr)?;
                self.put(")");
            }
        }
        self.put(" is ");
        self.put(test.name);
        if !test.args.is_empty() {
            self.arguments(&test.args, comparing)?;
        }
        self.put(")");
        Ok(())
    }

    // Writes `(value)|name(args)`, or `name(args)` where a chain has no value of its own (filter and set blocks).
    fn filter(&mut self, filter: &ast::Filter) -> Outcome {
        match &filter.expr {
            Some(chain @ Expr::Filter(_)) => {
                self.expression(chain)?;
                self.put("|");
            }
            Some(value) => {
                self.put("(");
                self.expression(value)?;
                self.put(")|");
            }
            None => {}
        }
        self.filter_call(filter)
    }

    fn filter_call(&mut self, filter: &ast::Filter) -> Outcome {
        if filter.name.starts_with("__") {
            return Err(format!("filter {} is unknown", filter.name));
        }
        self.put(filter.name);
        if !filter.args.is_empty() {
            self.arguments(&filter.args, NAMING_FILTERS.contains(&filter.name))?;
        }
        Ok(())
    }

    fn filter_chain(&mut self, chain: &Expr) -> Outcome {
        match chain {
            Expr::Filter(filter) => {
                if let Some(inner) = &filter.expr {
                    self.filter_chain(inner)?;
                    self.put("|__check|");
                }
                self.filter_call(filter)
            }
            _ => Err("a filter chain that is none".into()),
        }
    }

    fn call(&mut self, call: &ast::Call) -> Outcome {
        match &call.expr {
            Expr::Var(var) => self.put(var.id),
            Expr::GetAttr(attr) => {
                self.postfix_base(&attr.expr)?;
                self.put(".");
                self.put(attr.name);
            }
            other => {
                self.put("(");
                self.expression(other)?;
                self.put(")");
            }
        }
        self.arguments(&call.args, false)
    }

    fn arguments(&mut self, args: &[CallArg], plain: bool) -> Outcome {
        self.put("(");
        for (i, arg) in args.iter().enumerate() {
            self.put(if i > 0 { "," } else { "" });
            let value = match arg {
                CallArg::Pos(value) => value,
                CallArg::Kwarg(name, value) => {
                    self.put(name);
                    self.put("=");
                    value
                }
                CallArg::PosSplat(value) => {
                    self.put("*");
                    value
                }
                CallArg::KwargSplat(value) => {
                    self.put("**");
                    value
                }
            };
            match plain && !matches!(arg, CallArg::PosSplat(_) | CallArg::KwargSplat(_)) {
                true => self.plain(value)?,
                false => self.expression(value)?,
            }
        }
        self.put(")");
        Ok(())
    }
}
