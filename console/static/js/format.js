// SPDX-License-Identifier: Apache-2.0
// Figures as people read them. What is not known is a dash, never a zero.

export const percent = (value, digits = 0) => (value === null || value === undefined ? "–" : `${value.toFixed(digits)} %`);
export const points = (value) => (value === null ? "–" : `${value.toFixed(0)} points`);
export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

export function cpu(milli) {
  if (milli === null || milli === undefined) return "–";
  return milli < 1000 ? `${Math.round(milli)}m` : `${(milli / 1000).toFixed(milli < 10000 ? 2 : 1)} CPU`;
}

export function bytes(amount) {
  if (amount === null || amount === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) { amount /= 1024; unit += 1; }
  return `${amount >= 100 || unit === 0 ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "< 1 s";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return whole % 60 && whole < 600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.round(whole / 60)} min`;
  if (whole < 86400) return `${Number((whole / 3600).toFixed(1))} h`;
  return `${Math.round(whole / 86400)} days`;
}

export const now = () => Date.now() / 1000;
export const ago = (at) => (at === null || at === undefined ? "–" : `${duration(now() - at)} ago`);

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
export function clock(at) {
  if (at === null || at === undefined) return "–";
  return (Math.abs(now() - at) < 86400 / 2 ? clockFormat : dayFormat).format(new Date(at * 1000));
}
