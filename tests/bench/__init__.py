"""The yardstick itself: that every measure runs and says what it promises."""
