//! What stands at the front of the text: a marker, something leaked, a candidate of weak evidence, a fence, or just text.
//!
//! The place decides as much as the bytes: in a fence, in inline code and on a quoted line all is text. A token that leaks is
//! gone behind a call and at the very end; in the middle of an answer it is what the user asked about.

use super::formats::{self, Format, INVENTED, LEAKS, SHELLS, SURPLUS, THOUGHTS, Weak};
use super::grammar::{self, End, Step, blanks, may_become, starts_with_any, window};
use super::lines::{closes_showing, may_show};
use super::long::{HELD, Long};
use super::machine::{Look, Machine, PATIENCE};
use super::meant::Doubt;
use super::tags::M3;
use super::{Settings, channels, fence, json_block, markers, named, weak};

/// A line of a fence is looked through for so many bytes.
const LINE: usize = 256;
/// As many bytes of a marker, at the end of a cut answer, are no text.
pub(super) const HALF: usize = 4;

impl Machine {
    /// The beginning of a call that is too long to be held.
    fn look_long(
        &self,
        rest: &str,
        opener: &str,
        format: &'static Format,
        settings: &Settings,
    ) -> Option<Look> {
        if rest.len() <= HELD || (self.calls > 0 && !settings.parallel) {
            return None;
        }
        let context = self.context(End::Open, settings);
        if format.read(window(rest, HELD), opener, context) != Step::More {
            return None;
        }
        let (long, events, used) = Long::begin(rest, opener, format, &settings.tools, self.calls)?;
        Some(Look::Long(long, events, used))
    }

    /// What stands at the front.
    pub(super) fn look(&self, rest: &str, end: End, settings: &Settings) -> Look {
        let open = !end.is_end();
        let first = rest.as_bytes()[0];
        if let Some(format) = self.list.filter(|_| self.gap) {
            match first {
                b',' | b';' => return Look::Drop(1),
                // The ends of the list and of its wrapper, which may be that of a fence. MiniMax M3's marker begins alike.
                b']' if open && may_become(rest, M3) => return Look::Hold,
                b']' if !rest.starts_with(M3) => return Look::Drop(1),
                b'`' => match starts_with_any(rest, format.closers) {
                    Ok(closer) => return Look::Drop(closer.len()),
                    Err(true) if open => return Look::Hold,
                    Err(true) => return Look::Drop(rest.len()),
                    Err(false) => {}
                },
                b'{' => {
                    let context = self.context(end, settings);
                    let step = json_block::list(rest, 0, format.closers, context);
                    return Look::Read(format.settle(step, rest, context), true);
                }
                _ => {}
            }
        }
        if self.place.start && matches!(first, b'`' | b'~') {
            return self.look_fence(rest, end, settings);
        }
        if first == b'<'
            && open
            && (closes_showing(rest) == Err(true) || (self.place.start && may_show(rest)))
        {
            return Look::Hold;
        }
        if self.place.is_talk() {
            return Look::Text(1);
        }
        if self.shown && first == b'<' {
            match formats::closer_at(rest) {
                Ok(closer) => return Look::Shown(closer),
                Err(true) if open => return Look::Hold,
                Err(_) => {}
            }
        }
        let (mut partial, mut opener) = (false, false);
        if self.gap || matches!(first, b'<' | b'[') {
            match self.look_noise(rest, open) {
                Look::Text(_) => {}
                Look::Hold => partial = true,
                look => return look,
            }
        }
        let word = self.place.start && matches!(first, b'f' | b'A');
        if matches!(first, b'<' | b'[' | b']') || word {
            let leaks = partial && self.gap && self.has_call();
            match formats::at(rest) {
                Ok((format, _)) if !settings.looks_for(format) => return Look::Text(1),
                Ok((format, _)) if format.is_loose() && self.rejected > PATIENCE => return Look::Text(1),
                // Half a wrapper behind a call, where the model ended its turn.
                Ok((_, opener))
                    if end == End::Stop
                        && self.gap
                        && self.has_call()
                        && rest[opener.len()..].trim().is_empty() =>
                {
                    return Look::Drop(rest.len());
                }
                Ok((format, opener)) => {
                    let doubt = self.doubt_of(format);
                    let certain = doubt <= Doubt::Led && !self.place.shows();
                    if let Some(look) = self.look_long(rest, opener, format, settings).filter(|_| certain) {
                        return look;
                    }
                    let step = format.read(rest, opener, self.context(end, settings));
                    if partial && open && matches!(step, Step::Not(_)) {
                        // No call, but it may still become noise: `<function` of `<function_response>`.
                        return Look::Hold;
                    }
                    return match self.meant(rest, step, doubt, end, settings) {
                        Look::Read(step, strong) => Look::Read(step, strong && !format.is_loose()),
                        look => look,
                    };
                }
                // The answer was cut inside a marker.
                Err(true)
                    if end == End::Cut
                        && (!word || rest.contains(['<', '[', '`']))
                        && !leaks
                        && rest.len() >= HALF =>
                {
                    return Look::Read(Step::More, true);
                }
                Err(may) => opener = may,
            }
        }
        if (partial || opener) && open {
            return Look::Hold;
        }
        if partial && self.gap && self.has_call() && rest.len() > 1 {
            return Look::Drop(rest.len());
        }
        if self.place.start && first == b'>' {
            return self.look_quote(rest, end, settings);
        }
        let weak = settings.weak;
        // A further call whose opener was lost, right behind one.
        let further = self.gap && self.calls > 0 && first == b'{';
        if !self.place.start || (self.calls > 0 && !further) || weak == Weak::None || self.rejected > PATIENCE
        {
            return Look::Text(1);
        }
        let start = self.gap && !further;
        if start && weak == Weak::Any && matches!(first, b'a' | b'c' | b't') {
            match channels::stripped(rest, self.context(end, settings)) {
                Step::Not(_) => {}
                Step::More if !open => {}
                step => return Look::Read(step, false),
            }
        }
        if weak::is_candidate(first, start) {
            let step = weak::read(rest, start, self.context(end, settings));
            if further && !weak::may_close(rest, &step, open) {
                return Look::Text(1);
            }
            if self.is_denied(rest, &step) || (weak == Weak::Tagged && weak::is_bare(rest, &step, settings)) {
                return Look::Text(1);
            }
            return self.weakly_meant(rest, step, end, settings);
        }
        Look::Text(1)
    }

    /// Leaked tokens, surplus closers, shells, invented turns.
    fn look_noise(&self, rest: &str, open: bool) -> Look {
        if rest.starts_with('<') && !markers::may_begin(rest.as_bytes()) {
            return Look::Text(1);
        }
        let mut partial = match starts_with_any(rest, self.shell) {
            Ok(closer) => return Look::Drop(closer.len()),
            Err(may) => may,
        };
        if self.calls > 0 {
            match starts_with_any(rest, INVENTED) {
                Ok(_) => return Look::Stop,
                Err(may) => partial |= may,
            }
        }
        if self.gap && self.has_call() {
            if rest.starts_with(['}', ']']) && !rest.starts_with(M3) {
                return if open && may_become(rest, M3) { Look::Hold } else { Look::Drop(1) };
            }
            // A model that thinks again between its calls.
            for (opener, closers) in THOUGHTS {
                if rest.starts_with(opener) {
                    return Look::Read(Step::Reasoning(opener.len(), closers), true);
                }
                partial |= may_become(rest, opener);
            }
            match starts_with_any(rest, SURPLUS) {
                Ok(surplus) => return Look::Drop(surplus.len()),
                Err(may) => partial |= may,
            }
            match formats::closer_at(rest) {
                Ok(closer) => return Look::Drop(closer),
                Err(may) => partial |= may,
            }
        }
        if self.reasoned && self.place.start {
            match starts_with_any(rest, &["</think>"]) {
                Ok(again) => return Look::Drop(again.len()),
                Err(may) => partial |= may,
            }
        }
        if self.gap {
            for (opener, closers) in SHELLS {
                if rest.starts_with(opener) && (*opener != "<response>" || self.reasoned) {
                    return Look::Shell(opener.len(), closers);
                }
                partial |= may_become(rest, opener);
            }
        }
        match starts_with_any(rest, LEAKS) {
            Ok("</s>") if self.place.struck > 0 => return Look::Text(1),
            Ok(leak) if self.has_call() && self.gap => return Look::Drop(leak.len()),
            Ok(_) => return leaked_tail(rest, open),
            Err(may) => partial |= may,
        }
        if partial { Look::Hold } else { Look::Text(1) }
    }

    fn look_fence(&self, rest: &str, end: End, settings: &Settings) -> Look {
        let (mark, open) = (rest.as_bytes()[0], !end.is_end());
        let run = rest.bytes().take(LINE).take_while(|byte| *byte == mark).count();
        if run == rest.len() && open && run < LINE {
            return Look::Hold;
        }
        if run < 3 {
            return Look::Text(run);
        }
        let (line, complete) = match window(&rest[run..], LINE).split_once('\n') {
            Some((line, _)) => (line, true),
            None => (window(&rest[run..], LINE), rest.len() - run > LINE || !open),
        };
        if let Some((opened, length)) = self.place.fence {
            let closes = mark == opened && run >= length && line.trim().is_empty();
            return match (closes, complete) {
                (true, false) => Look::Hold,
                (true, true) => Look::Fence(run, false),
                (false, _) => Look::Text(run),
            };
        }
        // With another backtick on its line it is inline code.
        let plain = match mark == b'`' && line.contains('`') {
            true => Look::Text(run),
            false if mark == b'`' && !complete => Look::Hold,
            false => Look::Fence(run, false),
        };
        if mark == b'~'
            || self.place.is_talk()
            || self.calls > 0
            || settings.weak != Weak::Any
            || self.rejected > PATIENCE
        {
            return plain;
        }
        match fence::read(rest, self.gap, settings, self.context(end, settings)) {
            Step::Not(_) => plain,
            Step::More if !open => plain,
            Step::Shown(_) => Look::Fence(run, true),
            step if self.is_denied(rest, &step) => Look::Fence(run, true),
            Step::Calls(..) if self.doubt() > Doubt::Line => Look::Fence(run, true),
            step => Look::Read(step, false),
        }
    }

    fn look_quote(&self, rest: &str, end: End, settings: &Settings) -> Look {
        if !rest.starts_with(">>>") {
            return if ">>>".starts_with(rest) { Look::Hold } else { Look::Text(1) };
        }
        let context = self.context(end, settings);
        match grammar::settle(named::functionary(rest, 3, context), rest, &[], &[], context) {
            Step::Not(used) => Look::Text(used),
            step => self.meant(rest, step, self.doubt(), end, settings),
        }
    }
}

/// Leaked tokens are gone at the end of an answer only; in its middle they are what the user asked about.
fn leaked_tail(rest: &str, open: bool) -> Look {
    let mut at = 0;
    loop {
        at += blanks(&rest[at..]);
        match starts_with_any(&rest[at..], LEAKS) {
            Ok(leak) => at += leak.len(),
            Err(_) if at == rest.len() => return if open { Look::Hold } else { Look::Drop(at) },
            Err(true) if open => return Look::Hold,
            Err(_) => return Look::Text(1),
        }
    }
}
