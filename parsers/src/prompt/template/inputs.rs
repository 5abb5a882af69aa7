//! What one round of a template's loop over messages depends on, read from its syntax.
//!
//! Why: an agent sends the same conversation with every turn, and most rounds print what they printed a moment ago. What a round prints
//! is a function of what it reads; if all of that is known, its text can be remembered. So the body of the loop is searched for every
//! name that is not its own: expressions of such names (`loop.last`, `loop.index0 > ns.last_query_index`, `messages[loop.index0 + 1].role`)
//! are *inputs*, as large as they can be taken, so that a round depends on whether it is behind the last question and not on where that is.
//! Members of namespaces that a round may set are *state*: read before, set again after.
//!
//! It must never miss an input. Whatever is not understood (a namespace under two names, a macro that is handed around, `break`, the
//! date) makes the loop one that is not remembered.

use std::collections::{HashMap, HashSet};

use minijinja::machinery::ast::{Expr, ForLoop, Macro, Stmt};

use super::roles::{self, Roles};
use super::walk::{self, Reads};

/// Functions whose result depends on their arguments alone.
const PURE: [&str; 4] = ["range", "namespace", "dict", "raise_exception"];
/// What a loop tells of itself that depends on its list and its place alone.
const LOOP: [&str; 8] = ["index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem"];

/// A value that a round reads from outside of it.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    Expr(&'a Expr<'a>),
    Name(&'a str),
    Member(&'a str, &'a str),
}

/// A loop whose rounds can be remembered.
pub(super) struct Rounds<'a> {
    looping: *const ForLoop<'a>,
    /// The variable that stands for the message.
    pub(super) item: &'a str,
    /// The same in all rounds of a render.
    pub(super) fixed: Vec<Input<'a>>,
    /// Of each round, with the roles of the messages that read it.
    pub(super) each: Vec<(Roles<'a>, Input<'a>)>,
    /// Members of namespaces that rounds leave behind for later ones.
    pub(super) state: Vec<(&'a str, &'a str)>,
}

impl Rounds<'_> {
    /// Members of state as expressions.
    pub(super) fn states(&self) -> Vec<String> {
        self.state.iter().map(|(ns, member)| format!("{ns}.{member}")).collect()
    }

    pub(super) fn are_of(&self, looping: &ForLoop<'_>) -> bool {
        std::ptr::eq(self.looping.cast::<u8>(), std::ptr::from_ref(looping).cast())
    }
}

/// The loops of `template` whose rounds can be remembered.
pub(super) fn find<'a>(template: &'a Stmt<'a>) -> Vec<Rounds<'a>> {
    let seen = walk::Seen::of(template);
    if !seen.is_plain() {
        return Vec::new();
    }
    let mut loops = Vec::new();
    outer_loops(template, &mut loops);
    let printing = loops.into_iter().filter(|looping| walk::prints(&looping.body));
    printing.filter_map(|looping| Search::of(&seen, looping)).collect()
}

/// Loops that stand in no other one, and in no macro or capture: what they print goes straight to the prompt.
fn outer_loops<'a>(statement: &'a Stmt<'a>, loops: &mut Vec<&'a ForLoop<'a>>) {
    match statement {
        Stmt::Template(template) => template.children.iter().for_each(|child| outer_loops(child, loops)),
        Stmt::IfCond(cond) => {
            cond.true_body.iter().chain(&cond.false_body).for_each(|child| outer_loops(child, loops));
        }
        Stmt::ForLoop(looping) => loops.push(looping),
        _ => {}
    }
}

/// The search through one body.
struct Search<'a, 's> {
    seen: &'s walk::Seen<'a>,
    item: &'a str,
    /// Names that the body assigns.
    own: HashSet<&'a str>,
    /// Names that the rest of the template assigns.
    foreign: HashMap<&'a str, usize>,
    state: Vec<(&'a str, &'a str)>,
    fixed: Vec<Input<'a>>,
    each: Vec<(Roles<'a>, Input<'a>)>,
    /// Of the messages that come to where the search is.
    roles: Roles<'a>,
    macros: HashSet<&'a str>,
}

/// The body is not understood.
struct Unknown;

impl<'a, 's> Search<'a, 's> {
    fn of(seen: &'s walk::Seen<'a>, looping: &'a ForLoop<'a>) -> Option<Rounds<'a>> {
        let Expr::Var(item) = &looping.target else { return None };
        if looping.recursive {
            return None;
        }
        let body = walk::assigned(&looping.body);
        let foreign = seen.assigned_outside(&body.names);
        let mut search = Self {
            seen,
            item: item.id,
            own: body.names.keys().copied().collect(),
            foreign,
            state: Vec::new(),
            fixed: Vec::new(),
            each: Vec::new(),
            roles: None,
            macros: HashSet::new(),
        };
        search.find_state(&body).ok()?;
        search.statements(&looping.body, 0).ok()?;
        Some(Rounds { looping, item: item.id, fixed: search.fixed, each: search.each, state: search.state })
    }

    /// What the body and any macro set of outer namespaces.
    fn find_state(&mut self, body: &walk::Assigned<'a>) -> Result<(), Unknown> {
        for (ns, member) in &body.members {
            if self.own.contains(ns) {
                if self.foreign.contains_key(ns) {
                    return Err(Unknown);
                }
                continue;
            }
            self.add_state(ns, member);
        }
        for declared in self.seen.macros.values() {
            let within = walk::assigned(&declared.body);
            for (ns, member) in &within.members {
                if !within.names.contains_key(ns) {
                    self.add_state(ns, member);
                }
            }
        }
        Ok(())
    }

    fn add_state(&mut self, ns: &'a str, member: &'a str) {
        if !self.state.contains(&(ns, member)) {
            self.state.push((ns, member));
        }
    }

    fn statements(&mut self, body: &'a [Stmt<'a>], depth: usize) -> Result<(), Unknown> {
        body.iter().try_for_each(|statement| self.statement(statement, depth))
    }

    /// `depth`: how many loops of the body stand around.
    fn statement(&mut self, statement: &'a Stmt<'a>, depth: usize) -> Result<(), Unknown> {
        match statement {
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr, depth),
            Stmt::ForLoop(inner) => {
                if inner.recursive {
                    return Err(Unknown);
                }
                self.expression(&inner.iter, depth)?;
                if let Some(filter) = &inner.filter_expr {
                    // Which loop that would be is not said.
                    if !walk::reads(filter).of_loop.is_empty() {
                        return Err(Unknown);
                    }
                    self.expression(filter, depth)?;
                }
                self.statements(&inner.body, depth + 1)?;
                // Behind the inner loop, `loop` is the outer one again.
                self.statements(&inner.else_body, depth)
            }
            Stmt::IfCond(cond) => {
                self.expression(&cond.expr, depth)?;
                let before = self.roles.clone();
                if !self.own.contains(self.item) {
                    self.roles = roles::narrowed(&before, roles::implied(&cond.expr, self.item));
                }
                self.statements(&cond.true_body, depth)?;
                self.roles = before;
                self.statements(&cond.false_body, depth)
            }
            Stmt::WithBlock(with) => {
                with.assignments.iter().try_for_each(|(_, value)| self.expression(value, depth))?;
                self.statements(&with.body, depth)
            }
            Stmt::Set(set) => self.expression(&set.expr, depth),
            Stmt::SetBlock(set) => {
                set.filter.iter().try_for_each(|filter| self.expression(filter, depth))?;
                self.statements(&set.body, depth)
            }
            Stmt::FilterBlock(block) => {
                self.expression(&block.filter, depth)?;
                self.statements(&block.body, depth)
            }
            Stmt::Continue(_) | Stmt::Break(_) if depth > 0 => Ok(()),
            _ => Err(Unknown),
        }
    }

    fn expression(&mut self, expression: &'a Expr<'a>, depth: usize) -> Result<(), Unknown> {
        let reads = walk::reads(expression);
        if self.is_outer(&reads, depth) {
            match (reads.is_constant(), reads.of_loop.is_empty()) {
                (true, _) => {}
                (false, true) => self.fixed.push(Input::Expr(expression)),
                (false, false) => {
                    let input = only_member(&reads).unwrap_or(Input::Expr(expression));
                    self.each.push((self.roles.clone(), input));
                }
            }
            return Ok(());
        }
        match expression {
            Expr::Var(var) if var.id == "loop" => Err(Unknown),
            Expr::Var(var) => self.name(var.id),
            Expr::GetAttr(get) => match &get.expr {
                Expr::Var(var) if var.id == "loop" => {
                    if depth > 0 {
                        Ok(())
                    } else {
                        Err(Unknown)
                    }
                }
                Expr::Var(var) if self.seen.namespaces.contains(var.id) => self.member(var.id, get.name),
                base => self.expression(base, depth),
            },
            Expr::Call(call) => {
                match &call.expr {
                    Expr::Var(callee) => self.function(callee.id)?,
                    Expr::GetAttr(get) => match &get.expr {
                        Expr::Var(var) if var.id == "loop" && depth > 0 => {}
                        base => self.expression(base, depth)?,
                    },
                    _ => return Err(Unknown),
                }
                call.args.iter().try_for_each(|arg| self.expression(walk::argument(arg), depth))
            }
            other => walk::children(other).into_iter().try_for_each(|child| self.expression(child, depth)),
        }
    }

    /// A variable of the body's own: if the rest of the template has one of that name, it may be that one on some path.
    fn name(&mut self, name: &'a str) -> Result<(), Unknown> {
        if self.seen.macros.contains_key(name)
            || self.seen.namespaces.contains(name) && !self.own.contains(name)
        {
            return Err(Unknown);
        }
        if name != self.item && self.foreign.contains_key(name) {
            self.fixed.push(Input::Name(name));
        }
        Ok(())
    }

    /// A member of a namespace that is no input: one of state, or of a namespace of the body's own.
    fn member(&self, ns: &'a str, member: &'a str) -> Result<(), Unknown> {
        let is_own = self.own.contains(ns) && !self.foreign.contains_key(ns);
        if is_own || self.state.contains(&(ns, member)) { Ok(()) } else { Err(Unknown) }
    }

    /// Whether all that an expression reads stands outside of the round, and stays as it is during it.
    fn is_outer(&self, reads: &Reads<'a>, depth: usize) -> bool {
        let is_own = |name: &&str| *name == self.item || self.own.contains(name);
        let known = |member: &&str| LOOP.contains(member) || *member == "nextitem";
        reads.called.is_empty()
            && !reads.names.iter().any(|name| is_own(name) || self.seen.is_special(name) || *name == "loop")
            && (reads.of_loop.is_empty() || depth == 0 && reads.of_loop.iter().all(known))
            && reads.members.iter().all(|read| !is_own(&read.0) && !self.state.contains(read))
    }

    fn function(&mut self, name: &'a str) -> Result<(), Unknown> {
        match self.seen.macros.get(name) {
            Some(declared) if !self.own.contains(name) => self.called(declared),
            None if PURE.contains(&name) && !self.seen.is_assigned(name) => Ok(()),
            _ => Err(Unknown),
        }
    }

    /// A macro that the body calls reads what its arguments are, and what stands outside of it.
    fn called(&mut self, declared: &'a Macro<'a>) -> Result<(), Unknown> {
        if !self.macros.insert(declared.name) {
            return Ok(());
        }
        let own = walk::assigned(&declared.body).names;
        let elsewhere = self.seen.assigned_outside(&own);
        let reads = walk::reads_of_macro(declared).ok_or(Unknown)?;
        for name in reads.called {
            match self.seen.macros.get(name) {
                Some(callee) if !own.contains_key(name) => self.called(callee)?,
                None if PURE.contains(&name) && !self.seen.is_assigned(name) => {}
                _ => return Err(Unknown),
            }
        }
        for name in reads.names {
            match elsewhere.contains_key(name) {
                _ if self.seen.namespaces.contains(name) => {}
                // A variable of the request, which is in every key.
                false => {}
                true if self.seen.is_set_once(name) => self.fixed.push(Input::Name(name)),
                true => return Err(Unknown),
            }
        }
        for (ns, member) in reads.members {
            match (own.contains_key(ns), elsewhere.contains_key(ns)) {
                _ if !self.seen.namespaces.contains(ns) => {}
                (true, false) => {}
                (true, true) => return Err(Unknown),
                (false, _) if self.state.contains(&(ns, member)) => {}
                (false, _) if self.seen.is_set_once(ns) => self.fixed.push(Input::Member(ns, member)),
                (false, _) => return Err(Unknown),
            }
        }
        Ok(())
    }
}

/// `not loop.last` is as good as `loop.last`.
fn only_member<'a>(reads: &Reads<'a>) -> Option<Input<'a>> {
    let mut members = reads.of_loop.iter();
    match (members.next(), members.next()) {
        (Some(member @ (&"first" | &"last")), None) if reads.names.is_empty() && reads.members.is_empty() => {
            Some(Input::Member("loop", member))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
