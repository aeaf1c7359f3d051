// How numbers are shown. Text from the wire becomes text nodes only: preact escapes what it renders.
import { h } from "/vendor/preact.mjs";
import htm from "/vendor/htm.mjs";

export const html = htm.bind(h);

const STEPS = ["", "k", "M", "G", "T", "P"];

/** A number in at most four digits, in thousands: 12.3 M. */
export function short(number) {
  let value = Math.abs(number), step = 0;
  while (value >= 999.5 && step < STEPS.length - 1) { value /= 1000; step++; }
  const digits = step === 0 ? (Number.isInteger(value) || value >= 100 ? 0 : 1) : value < 10 ? 2 : value < 100 ? 1 : 0;
  return [(number < 0 ? "−" : "") + value.toFixed(digits), STEPS[step]];
}

/** A number with commas between its thousands, as the command line has it. */
export const whole = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ",");

/** The units that `b` goes through: how an amount [packets, bytes] is read. */
export const UNITS = {
  bits: { name: "bit/s", of: ([, bytes], seconds) => bytes * 8 / seconds },
  bytes: { name: "B", of: ([, bytes]) => bytes },
  packets: { name: "packets", of: ([packets]) => packets },
};

export function text(number, unit) {
  const [digits, step] = short(number);
  return `${digits} ${step}${unit}`.trimEnd();
}

export function amount(pair, unit, seconds) {
  if (!pair) return "–";
  return text(UNITS[unit].of(pair, seconds), UNITS[unit].name === "packets" ? "" : UNITS[unit].name);
}

/** A time of day. A format of the browser takes 20 ms to make, which the first numbers would wait for. */
export const clock = (seconds) => { const time = new Date(seconds * 1000); return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":"); };
let format;
/** A day and a time without seconds. */
export function moment(seconds) {
  format ??= new Intl.DateTimeFormat([], { hour12: false, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
  return format.format(seconds * 1000);
}

/** A part of the whole. */
export const percent = (part) => (part > 0 && part < 0.0005 ? "< 0.1 %" : `${(part * 100).toFixed(part < 0.0995 ? 1 : 0)} %`);
