"""Rates of every accelerator: its own fits, else a relative's, else a stated share of the peak.

A rate is a plain dictionary. GEMM: `launch` (s), `math` and `bandwidth` (shares of peak), `dgrad` and `wgrad` (time
over the forward model), `peak` (the dtype whose peak counts), in fp8 `quantize` (share of bandwidth). Grouped GEMM: the
same with one entry per pass. Attention: one entry per direction, mask and head dimension, plus `ratio` (time over the
entry's own). Memory: `share`. Each carries `band` (time low, time high, as multiples), `tier` and `source`, and
`sustained` where it was measured in loops as long as a step.
"""

from __future__ import annotations

from typing import Any

from primus_lint.hardware.compiled import base

FITTED, TRANSFERRED, CONSTANT = "fitted", "transferred", "constant"
Rate = dict[str, Any]


def resolve_rates(raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Accelerator -> {"gemm", "grouped_gemm", "attention", "attention_kernels", "memory", "in_situ"}."""
    resolver = _Resolver(raw)
    return {name: resolver.rates(name) for name in raw["accelerators"]}


class _Resolver:
    def __init__(self, raw: dict[str, Any]) -> None:
        self.accelerators: dict[str, Any] = raw["accelerators"]
        self.fits: dict[str, Any] = raw["fits"]
        self.policy: dict[str, Any] = raw["rates"]

    def rates(self, name: str) -> dict[str, Any]:
        gemm = self.gemm(name)
        return {
            "gemm": gemm,
            "grouped_gemm": self.grouped(name, gemm),
            "attention": self.attention(name),
            "attention_kernels": {
                str(generation): base(fact)
                for generation, fact in self.policy["attention_kernels"]
                .get(str(self.accelerators[name]["arch"]), {})
                .items()
            },
            "memory": self.memory(name),
            "in_situ": self.in_situ(str(self.accelerators[name]["arch"])),
        }

    def in_situ(self, arch: str) -> dict[str, Any]:
        """Bits of the operands (text) -> {"class", "ratio", "low", "high"}, and the version; empty where no run tells."""
        policy = self.policy["in_situ_ratio"]
        found: dict[str, Any] = {}
        for name, entry in policy["classes"].items():
            if arch in entry["arch"]:
                fact = entry["ratio"]
                ratio = {"class": name, "ratio": base(fact), "low": base(fact, "low"), "high": base(fact, "high")}
                found.update({str(bits): ratio for bits in entry["bits"]})
        return {**found, "version": policy["version"]} if found else {}

    # -- GEMM ------------------------------------------------------------------------------------------------------
    def gemm(self, name: str) -> dict[str, Rate]:
        entry = self.accelerators[name]
        found = {dtype: self.gemm_dtype(name, dtype) for dtype in entry["peak"] if dtype != "fp4"}
        for recipe, rule in self.policy["recipes"][entry["vendor"]].items():
            if rule["peak"] not in entry["peak"]:
                continue
            if "like" in rule and rule["peak"] == rule["like"]:
                like = {key: value for key, value in found[rule["like"]].items() if key != "tables"}
                found[recipe] = {**like, "tier": TRANSFERRED}
            elif "like" in rule:
                found[recipe] = {**self.transferred(found[rule["like"]]), "peak": rule["peak"]}
            else:
                found[recipe] = self.constant(name, rule["peak"], rule["constant"], rule["backward_ratio"])
        return found

    def gemm_dtype(self, name: str, dtype: str) -> Rate:
        """The rate of a dtype: fit, policy, or the shares of bf16 at this dtype's peak."""
        fit = self.fits["gemm"].get(name, {}).get(dtype)
        if fit is not None:  # `tables`: the sources of its rows, of which exact shapes are looked up
            rate = {**self.fitted(fit), "peak": dtype, "tables": fit["source"].split("+")}
        else:
            rule = self.policy["gemm"].get(name, {}).get(dtype)
            if rule is None:
                rate = {**self.transferred(self.gemm_dtype(name, "bf16")), "peak": dtype} if dtype != "fp16" else {
                    **self.gemm_dtype(name, "bf16"), "peak": "fp16",
                }  # fmt: skip
            elif "of" in rule:
                rate = {**self.transferred(self.gemm_dtype(name, rule["of"])), "peak": dtype}
                rate["math"] *= base(rule["ratio"])
                ratio = [base(rule["ratio"]) / base(rule["ratio"], end) for end in ("high", "low")]
                rate["band"] = [rate["band"][0] * ratio[0], rate["band"][1] * ratio[1]]
            else:
                rate = {**self.transferred(self.gemm_dtype(rule["like"], dtype)), "peak": dtype}
                rate["math"] *= self.clock(name, rule["like"])
        if rate.get("dgrad") is None:
            rate["dgrad"] = rate["wgrad"] = self.backward_ratio(name, dtype)
        if dtype == "fp8" and "quantize" not in rate:  # rows of the bare product
            rate["quantize"] = self.memory(name)["elementwise"]["share"]
        return rate

    def backward_ratio(self, name: str, dtype: str) -> float:
        """dgrad and wgrad time over forward time where the fit has no rows of them."""
        fit = self.fits["gemm"].get(name, {}).get(dtype, {})
        if fit.get("dgrad") is not None:
            return float((fit["dgrad"] + fit["wgrad"]) / 2)
        rule = self.policy["backward_ratio"].get(name, {})
        if dtype in rule:
            entry = rule[dtype]
            return self.backward_ratio(entry["like"], dtype) if "like" in entry else float(base(entry))
        return self.backward_ratio(name, "bf16") if dtype != "bf16" else 1.0

    def constant(self, name: str, peak: str, fact: dict[str, Any], backward_ratio: float) -> Rate:
        vendor = self.accelerators[name]["vendor"]
        band = self.policy["bands"]["constant"]
        return {
            "launch": base(self.policy["launch"][vendor]),
            "math": base(fact),
            "bandwidth": self.memory(name)["elementwise"]["share"],
            "dgrad": backward_ratio,
            "wgrad": backward_ratio,
            "peak": peak,
            "whole": True,  # quantization is in the share
            "band": [band["low"], band["high"]],
            "tier": CONSTANT,
            "source": fact["source"],
        }

    def clock(self, name: str, other: str) -> float:
        """Sustained clock of an accelerator over that of a relative: of best matmul over peak, else of power over peak to
        an exponent; 1 where neither is known of both, and on the A100, which its power does not bound."""
        entries = self.accelerators[name], self.accelerators[other]
        best = [entry["achievable"].get("bf16") for entry in entries]
        if None not in best:
            return self._over_peak(best[0], entries[0]) / self._over_peak(best[1], entries[1])
        power = [entry.get("power") for entry in entries]
        if None in power or entries[0]["arch"] in self.policy["not_power_bound"]:
            return 1.0
        ratio = self._over_peak(power[0], entries[0]) / self._over_peak(power[1], entries[1])
        return float(ratio ** base(self.policy["power_exponent"]))

    @staticmethod
    def _over_peak(fact: dict[str, Any] | None, entry: dict[str, Any]) -> float:
        assert fact is not None
        return float(base(fact) / base(entry["peak"]["bf16"]))

    def fitted(self, fit: dict[str, Any]) -> Rate:
        return {**fit, "tier": FITTED, "sustained": fit["source"] in self.policy["in_situ_ratio"]["sustained"]}

    def transferred(self, rate: Rate) -> Rate:
        wider = self.policy["bands"]["transferred"]
        low, high = rate["band"]
        own = {key: value for key, value in rate.items() if key != "tables"}  # rows of another device or format
        return {**own, "band": [low * wider["low"], high * wider["high"]], "tier": TRANSFERRED}

    # -- grouped GEMM ----------------------------------------------------------------------------------------------
    def grouped(self, name: str, gemm: dict[str, Rate]) -> dict[str, dict[str, Rate]]:
        """dtype -> pass ("fwd", "dgrad", "wgrad") -> rate. Other dtypes than bf16 scale by the GEMM shares."""
        half = self.grouped_half(name, gemm)
        recipes = self.policy["recipes"][self.accelerators[name]["vendor"]]
        found = {}
        for dtype, rate in gemm.items():
            whole = self.grouped_whole(name, recipes.get(dtype, {}).get("like", dtype))
            if whole is not None:
                forward = self.constant(name, rate["peak"], whole["constant"], 1.0)
                backward = _slowed(forward, base(whole["backward_ratio"]))
                found[dtype] = {"fwd": forward, "dgrad": backward, "wgrad": backward}
                continue
            if dtype in ("bf16", "fp16"):
                found[dtype] = {kind: {**entry, "peak": dtype} for kind, entry in half.items()}
                continue
            scale = rate["math"] / gemm["bf16"]["math"]
            alike = rate.get("sustained") == gemm["bf16"].get("sustained")
            found[dtype] = {
                kind: {
                    **self.transferred(entry), "math": entry["math"] * scale, "peak": rate["peak"],
                    "sustained": alike and entry.get("sustained", False),
                    **{key: rate[key] for key in ("quantize", "whole") if key in rate},
                }
                for kind, entry in half.items()
            }  # fmt: skip
        return found

    def grouped_whole(self, name: str, dtype: str) -> dict[str, Any] | None:
        """The stated share of whole operations in a dtype, of this accelerator or of the one that it is like."""
        rule: dict[str, Any] = self.policy["grouped_gemm"].get(name, {})
        if dtype in rule:
            return dict(rule[dtype])
        return self.grouped_whole(rule["like"], dtype) if "like" in rule else None

    def grouped_half(self, name: str, gemm: dict[str, Rate]) -> dict[str, Rate]:
        policy = self.policy["grouped_gemm"]
        rule = policy.get(name, {})
        fit = self.fits["grouped_gemm"].get(name)
        if fit is not None:
            forward = self.fitted(fit["fwd"])
            ratio = base(rule["backward_ratio"]) if "backward_ratio" in rule else None
            return {
                kind: self.fitted(fit[kind]) if kind in fit else _slowed(forward, ratio)
                for kind in ("fwd", "dgrad", "wgrad")
            }
        if "like" in rule:
            other = self.grouped_half(rule["like"], gemm)
            clock = self.clock(name, rule["like"])
            rates = {kind: {**self.transferred(entry), "math": entry["math"] * clock} for kind, entry in other.items()}
            if "math" in rule:
                scale = base(rule["math"]) / rates["fwd"]["math"]
                rates = {kind: {**entry, "math": entry["math"] * scale} for kind, entry in rates.items()}
            if "backward_ratio" in rule:
                slower = _slowed(rates["fwd"], base(rule["backward_ratio"]))
                rates["dgrad"] = rates["wgrad"] = slower
            return rates
        plain = self.transferred(gemm["bf16"])
        forward = {**plain, "launch": base(policy["default"]["launch"])}
        return {kind: _slowed(forward, 1.0 if kind == "fwd" else plain[kind]) for kind in ("fwd", "dgrad", "wgrad")}

    # -- attention -------------------------------------------------------------------------------------------------
    def attention(self, name: str) -> dict[str, dict[str, dict[str, Rate]]]:
        """direction -> mask ("causal", "full") -> head dimension (text) -> rate."""
        rule = self.policy["attention"].get(name, {})
        if "like" in rule:
            other, clock = self.attention(rule["like"]), self.clock(name, rule["like"])
            faster = {
                way: clock * (base(rule["forward_ratio"]) if way == "forward" and "forward_ratio" in rule else 1.0)
                for way in other
            }
            return {
                way: {
                    mask: {
                        dim: {**self.transferred(rate), "math": rate["math"] * faster[way]}
                        for dim, rate in dims.items()
                    }
                    for mask, dims in masks.items()
                }
                for way, masks in other.items()
            }
        fit = self.fits["attention"][name]
        prefill = self.policy["attention"]["prefill_ratio"].get(name)
        slower = 1.0 if prefill is None else 1.0 / base(prefill)
        forward = {
            mask: {dim: {**self.fitted(rate), "ratio": slower} for dim, rate in dims.items()}
            for mask, dims in fit["forward"].items()
        }
        if "backward" in rule:
            backward = self.attention(rule["backward"]["like"])["backward"]
        elif "backward" in fit:
            backward = {
                mask: {dim: {**self.fitted(rate), "ratio": 1.0} for dim, rate in dims.items()}
                for mask, dims in fit["backward"].items()
            }
        else:
            ratio = base(self.policy["attention"]["backward_ratio"])
            backward = {
                mask: {dim: {**self.transferred(rate), "ratio": ratio * slower} for dim, rate in dims.items()}
                for mask, dims in forward.items()
            }
        return {"forward": forward, "backward": backward}

    # -- memory ----------------------------------------------------------------------------------------------------
    def memory(self, name: str) -> dict[str, Rate]:
        """Kind of kernel -> share of the memory bandwidth."""
        vendor = self.accelerators[name]["vendor"]
        rules = {**self.policy["memory"]["default"][vendor], **self.policy["memory"].get(name, {})}
        own = self.fits["memory"].get(name, {})
        found = {kind: self.memory_kind(kind, rule) for kind, rule in rules.items()}
        found.update({kind: self.fitted(rate) for kind, rate in own.items()})
        return found

    def memory_kind(self, kind: str, rule: dict[str, Any]) -> Rate:
        if "like" in rule:
            return self.transferred(self.fitted(self.fits["memory"][rule["like"]][kind]))
        share = base(rule)
        band = [share / base(rule, "high"), share / base(rule, "low")]
        return {"share": share, "band": band, "tier": CONSTANT, "source": rule["source"]}


def _slowed(rate: Rate, ratio: float | None) -> Rate:
    """The same rate with `ratio` times its time: both shares fall."""
    if ratio is None:
        return rate
    return {**rate, "math": rate["math"] / ratio, "bandwidth": rate["bandwidth"] / ratio}
