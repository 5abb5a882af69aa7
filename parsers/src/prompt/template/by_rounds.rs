//! Writes a parsed template out again: the loops whose rounds are asked for before they are run ([`super::rounds`]).

use minijinja::machinery::ast::{ForLoop, Stmt};

use super::inputs::Input;
use super::printer::{Printed, Printer};
use super::quick;
use super::roles::Roles;
use super::rounds::{BEGIN, IS_KNOWN, ITEM, KEEP, LEFT, LOOP, NEXT, TEXT, WALK};

impl Printer<'_> {
    /// What is the same in all rounds of a loop.
    pub(super) fn before_rounds(&mut self, at: usize) -> Printed {
        let fixed = self.rounds.get(at).map(|rounds| rounds.fixed.clone()).unwrap_or_default();
        let inputs = self.arguments_of(&fixed)?;
        self.put(&format!("{{{{ {BEGIN}({at}{inputs}) }}}}"));
        Ok(())
    }

    /// A loop of which only the rounds are run that are not known; false if its inputs are not to be told without running it.
    pub(super) fn walk(&mut self, at: usize, looping: &ForLoop<'_>) -> Result<bool, String> {
        let Some(rounds) = self.rounds.get(at).filter(|_| is_plain(looping)) else { return Ok(false) };
        let (item, each, state) = (rounds.item, rounds.each.clone(), rounds.states());
        let Some((inputs, outer)) = quick::compile(&self.asked(&each)?) else { return Ok(false) };
        let states = state.join(", ");
        self.put(&format!("{{% for __step in {WALK}({}, ", self.quick.len()));
        self.quick.push(inputs);
        self.each(&looping.iter)?;
        for expression in outer {
            self.put(", ");
            self.expression(expression)?;
        }
        self.put(&format!(") %}}{{% set {LOOP} = {NEXT}({states}) %}}"));
        self.put_left(&state);
        self.put(&format!("{{% if {LOOP} is none %}}{{% break %}}{{% endif %}}"));
        self.put(&format!("{{% set {item} = {LOOP}.{ITEM} %}}"));
        self.depth = Some(0);
        self.kept_body(&looping.body, &state)?;
        self.depth = None;
        self.put("{% endfor %}");
        Ok(true)
    }

    /// A round: what it would print and leave behind, if that is known, else the body, whose text is kept.
    pub(super) fn round(&mut self, at: usize, body: &[Stmt<'_>]) -> Printed {
        let Some(rounds) = self.rounds.get(at) else { return Ok(()) };
        let (item, each, state) = (rounds.item, rounds.each.clone(), rounds.states());
        let each: Vec<Input<'_>> = each.into_iter().map(|(_, input)| input).collect();
        let inputs = self.arguments_of(&each)?;
        let states: String = state.iter().map(|member| format!(", {member}")).collect();
        self.put(&format!("{{% if {IS_KNOWN}({item}{inputs}{states}) %}}"));
        self.put_left(&state);
        self.put("{% else %}");
        self.kept_body(body, &state)?;
        self.put("{% endif %}");
        Ok(())
    }

    /// Sets the state to what the last known round left.
    fn put_left(&mut self, state: &[String]) {
        for (place, member) in state.iter().enumerate() {
            self.put(&format!("{{% set {member} = {LEFT}({place}) %}}"));
        }
    }

    /// The body of a round that is run, with its text kept.
    fn kept_body(&mut self, body: &[Stmt<'_>], state: &[String]) -> Printed {
        self.put(&format!("{{% set {TEXT} %}}"));
        self.statements(body)?;
        let states: String = state.iter().map(|member| format!(", {member}")).collect();
        self.put(&format!("{{% endset %}}{{{{ {KEEP}({TEXT}{states}) }}}}"));
        Ok(())
    }

    /// How an input is written.
    fn written(&mut self, input: &Input<'_>) -> Result<String, String> {
        let before = std::mem::take(&mut self.out);
        match input {
            Input::Expr(expression) => self.expression(expression)?,
            Input::Name(name) => self.name(name)?,
            Input::Member(base, member) => self.put(&format!("{base}.{member}")),
        }
        Ok(std::mem::replace(&mut self.out, before))
    }

    /// Inputs as further arguments, each once.
    fn arguments_of(&mut self, inputs: &[Input<'_>]) -> Result<String, String> {
        let mut written: Vec<String> = Vec::new();
        for input in inputs {
            let input = format!(", {}", self.written(input)?);
            if !written.contains(&input) {
                written.push(input);
            }
        }
        Ok(written.concat())
    }

    /// Inputs, each once, for the roles of all places where they stand.
    fn asked<'i>(
        &mut self,
        inputs: &[(Roles<'i>, Input<'i>)],
    ) -> Result<Vec<(Roles<'i>, Input<'i>)>, String> {
        let mut written: Vec<String> = Vec::new();
        let mut asked: Vec<(Roles<'i>, Input<'i>)> = Vec::new();
        for (roles, input) in inputs {
            let text = self.written(input)?;
            match written.iter().position(|other| *other == text).and_then(|at| asked.get_mut(at)) {
                Some((all, _)) => *all = all.take().zip(roles.clone()).map(|(all, more)| &all | &more),
                None => {
                    written.push(text);
                    asked.push((roles.clone(), *input));
                }
            }
        }
        Ok(asked)
    }
}

/// A loop through all of its list, with nothing for an empty one.
fn is_plain(looping: &ForLoop<'_>) -> bool {
    looping.filter_expr.is_none() && looping.else_body.is_empty() && !looping.recursive
}
